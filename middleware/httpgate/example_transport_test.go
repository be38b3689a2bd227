package httpgate_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

func ExampleTransport() {
	gate := spillway.New(closed{}) // a breaker per host, say
	client := &http.Client{Transport: spillway.Must(httpgate.NewTransport(gate, nil, nil))}

	_, err := client.Get("http://backend.example/")
	fmt.Println(err)
	fmt.Println(errors.Is(err, spillway.ErrRejected))
	// Output:
	// Get "http://backend.example/": spillway: example refused: no room
	// true
}

func ExampleNewTransport() {
	srv := httptest.NewServer(http.HandlerFunc(hello))
	defer srv.Close()
	gate := spillway.New()
	rt, err := httpgate.NewTransport(gate, nil, &httpgate.TransportOptions{MinBudget: time.Second})
	if err != nil {
		panic(err)
	}

	res, err := (&http.Client{Transport: rt}).Get(srv.URL)
	if err != nil {
		panic(err)
	}
	fmt.Println("in flight", gate.Stats().InFlight)
	res.Body.Close()
	fmt.Println("in flight", gate.Stats().InFlight, "leaked", rt.Stats().Leaked)
	// Output:
	// in flight 1
	// in flight 0 leaked 0
}

func ExampleTransportOptions() {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	o := &httpgate.TransportOptions{
		Request: func(r *http.Request) spillway.Request {
			return spillway.Request{Key: httpgate.HostKey(r), Priority: spillway.Critical}
		},
		Outcome: func(r *http.Request, res *http.Response, err error) spillway.Outcome {
			if res != nil && res.StatusCode == http.StatusNotFound {
				return spillway.Failure // this server has everything, unless it is broken
			}
			return httpgate.DefaultTransportOutcome(r, res, err)
		},
	}
	gate := spillway.New()
	res, err := (&http.Client{Transport: spillway.Must(httpgate.NewTransport(gate, nil, o))}).Get(srv.URL)
	if err != nil {
		panic(err)
	}
	res.Body.Close()
	fmt.Println("failed", gate.Stats().Failed)
	// Output: failed 1
}

func ExampleRetryAfter() {
	now := time.Date(2026, time.November, 21, 12, 0, 0, 0, time.UTC)
	for _, value := range []string{"120", "Sat, 21 Nov 2026 12:00:30 GMT", "soon"} {
		fmt.Println(httpgate.RetryAfter(http.Header{"Retry-After": {value}}, now))
	}
	// Output:
	// 2m0s
	// 30s
	// 0s
}

func ExampleRetryBudget() {
	budget, err := httpgate.NewRetryBudget(&httpgate.RetryBudgetOptions{MaxTokens: 4})
	if err != nil {
		panic(err)
	}
	// A client with TransportOptions.Budget does this for each call.
	for budget.Allow() {
		fmt.Println("retry with", budget.Tokens(), "tokens")
		budget.Record(spillway.Failure)
	}
	fmt.Println("give up with", budget.Tokens(), "tokens")
	// Output:
	// retry with 4 tokens
	// retry with 3 tokens
	// give up with 2 tokens
}

// A server that refuses says what to hold back, and a client that listens does not send it.
func ExampleTransportOptions_listenTo() {
	server := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		// httpgate.Options.TellClients does this.
		w.Header().Set("Spillway-Overload", `level=0, reduce=0.5, valid=2000, seq=1, src="k3f9"`)
	})
	srv := httptest.NewServer(server)
	defer srv.Close()
	rt := spillway.Must(httpgate.NewTransport(spillway.New(), nil, &httpgate.TransportOptions{
		ListenTo: []string{strings.TrimPrefix(srv.URL, "http://")},
		Request:  func(*http.Request) spillway.Request { return spillway.Request{Priority: spillway.Sheddable} },
	}))
	client := &http.Client{Transport: rt}
	for range 3 {
		res, err := client.Get(srv.URL)
		if err != nil {
			fmt.Println("refused here:", errors.Is(err, spillway.ErrRejected))
			continue
		}
		res.Body.Close()
		fmt.Println(res.Status)
	}
	fmt.Println("held back:", rt.Stats().HeldBack)
	// Output:
	// 200 OK
	// 200 OK
	// refused here: true
	// held back: 1
}

func ExampleRetry() {
	var calls atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "attempt ", r.Header.Get("X-Envoy-Attempt-Count"))
	}))
	defer srv.Close()
	client := &http.Client{Transport: spillway.Must(httpgate.NewTransport(spillway.New(), nil, &httpgate.TransportOptions{
		Retry:  &httpgate.Retry{Attempts: 3, Backoff: 10 * time.Millisecond},
		Budget: spillway.Must(httpgate.NewRetryBudget(nil)), // one for all clients of the process
	}))}

	res, err := client.Get(srv.URL)
	if err != nil {
		panic(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	fmt.Println(res.StatusCode, string(body))
	// Output: 200 attempt 2
}

func ExampleHostKey() {
	for _, address := range []string{"https://API.example:443/a", "https://api.example/b", "http://api.example:8080/"} {
		r, err := http.NewRequest(http.MethodGet, address, nil)
		if err != nil {
			panic(err)
		}
		fmt.Println(httpgate.HostKey(r))
	}
	// Output:
	// api.example
	// api.example
	// api.example:8080
}
