package httpgate_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// closed is a Policy that refuses everything, as one does that has no room left.
type closed struct{}

var errNoRoom = &spillway.Rejection{Policy: "example", Reason: "no room"}

func (closed) Admit(context.Context, spillway.Request) (spillway.Ticket, error) { return 0, errNoRoom }
func (closed) Done(spillway.Request, spillway.Ticket, spillway.Result)          {}

// status sends a GET to h and returns the status of the answer.
func status(h http.Handler, path string) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

func ExampleHandler() {
	gate := spillway.New(closed{}) // a shedder, a limit, a breaker, or several
	h := httpgate.Handler(gate, nil)(http.HandlerFunc(hello))

	fmt.Println(status(h, "/"))
	fmt.Println(status(h, "/livez")) // a probe is served even now
	// Output:
	// 503
	// 200
}

func ExampleNew() {
	m, err := httpgate.New(spillway.New(closed{}), &httpgate.Options{MaxLongLived: 100})
	if err != nil {
		panic(err)
	}
	h := m.Handler(http.HandlerFunc(hello))
	status(h, "/metrics")
	fmt.Printf("%+v\n", m.Stats())

	_, err = httpgate.New(spillway.New(), &httpgate.Options{MaxLongLived: -1})
	fmt.Println(err)
	// Output:
	// {Exempt:1 LongLived:0 LongLivedRefused:0 HeldBack:0 Throttled:0 Retries:0 Leaked:0}
	// httpgate: MaxLongLived: must be at least 0, got -1
}

func ExampleOptions() {
	o := &httpgate.Options{
		Request: func(r *http.Request) spillway.Request {
			req := spillway.Request{Key: r.Header.Get("X-Tenant")} // set by a proxy of ours
			if strings.HasPrefix(r.URL.Path, "/checkout/") {
				req.Priority = spillway.Critical
			}
			return req
		},
		Exempt: func(r *http.Request) bool {
			return r.URL.Path == "/ping" || httpgate.DefaultExempt(r)
		},
		LongLived: func(r *http.Request) bool {
			return strings.HasPrefix(r.URL.Path, "/watch/")
		},
		Outcome: func(r *http.Request, status int) spillway.Outcome {
			if status == http.StatusNotImplemented {
				return spillway.Ignored // by design, not by overload
			}
			return httpgate.DefaultOutcome(r.Context(), status)
		},
		Refuse: func(w http.ResponseWriter, r *http.Request, rej *spillway.Rejection) {
			w.Header().Set("X-Envoy-Overloaded", "true") // Envoy does not retry it
			httpgate.WriteRefusal(w, r, rej)
		},
	}
	h := httpgate.Handler(spillway.New(closed{}), o)(http.HandlerFunc(hello))
	fmt.Println(status(h, "/ping"), status(h, "/checkout/1"))
	// Output: 200 503
}

func ExampleDefaultOutcome() {
	for _, status := range []int{200, 404, 500, 503} {
		fmt.Println(status, httpgate.DefaultOutcome(context.Background(), status))
	}
	// Output:
	// 200 success
	// 404 ignored
	// 500 failure
	// 503 dropped
}

// A framework whose middleware is not a func(http.Handler) http.Handler needs three calls around its own.
func ExampleWriteRefusal() {
	gate := spillway.New(closed{})
	middleware := func(w http.ResponseWriter, r *http.Request, next func() (status int)) {
		permit, err := gate.Enter(r.Context(), spillway.Request{})
		if err != nil {
			httpgate.WriteRefusal(w, r, err)
			return
		}
		defer permit.Done(spillway.Failure) // covers panics
		permit.Done(httpgate.DefaultOutcome(r.Context(), next()))
	}

	w := httptest.NewRecorder()
	middleware(w, httptest.NewRequest(http.MethodGet, "/", nil), func() int { return http.StatusOK })
	fmt.Println(w.Code, w.Header().Get("Content-Type"), w.Header().Get("Cache-Control"))
	// Output: 503 application/problem+json no-store
}

func ExampleProblem() {
	err := &spillway.Rejection{Policy: "limiter", Reason: "quota used up", OverQuota: true}
	header := http.Header{} // or whatever sets a header in your framework
	status, body := httpgate.Problem(err, header.Set)
	fmt.Println(status, header.Get("Content-Type"), header.Get("Retry-After") != "")
	fmt.Println(strings.ReplaceAll(strings.TrimSpace(body), ",", ",\n "))
	// Output:
	// 429 application/problem+json true
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",
	//  "title":"Request cannot be satisfied as assigned quota has been exceeded",
	//  "status":429}
}

// Tenants share a limit each; so do clients without a tenant, by their address.
func ExampleFirstKey() {
	byTenant := httpgate.HeaderKey("X-Tenant") // set by a proxy of yours
	ip := spillway.Must(httpgate.NewClientIP(nil))
	perClient := spillway.Must(limiter.NewKeyed(limiter.FixedWindow{Limit: 1, Period: time.Hour}, nil))
	h := httpgate.Handler(spillway.New(perClient), &httpgate.Options{
		Request: httpgate.KeyBy(httpgate.FirstKey(byTenant, ip.Key)),
	})(http.HandlerFunc(hello))

	for _, tenant := range []string{"blue", "green", "", "blue"} {
		r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
		if tenant != "" {
			r.Header.Set("X-Tenant", tenant)
		}
		h.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 200
	// 200
	// 429
}

// A service of the own network may name the priority of its requests. Nobody else may.
func ExampleNewPriority() {
	priority := spillway.Must(httpgate.NewPriority(&httpgate.PriorityOptions{
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	}))
	for _, peer := range []string{"10.1.2.3:1234", "203.0.113.9:1234"} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = peer
		r.Header.Set("Spillway-Priority", "critical")
		fmt.Println(peer, priority(r))
	}
	// Output:
	// 10.1.2.3:1234 critical
	// 203.0.113.9:1234 normal
}
