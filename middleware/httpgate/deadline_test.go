package httpgate_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/deadline"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

const ms = time.Millisecond

// late returns a policy that refuses requests that would hardly finish in time.
func late(t testing.TB) *deadline.Policy {
	t.Helper()
	p, err := deadline.New(nil)
	require.NoError(t, err)
	return p
}

// byClient are options by which all requests have one route, and the timeout that timeout reads.
func byClient(timeout func(*http.Request) time.Duration) *httpgate.Options {
	return &httpgate.Options{Request: func(r *http.Request) spillway.Request {
		return spillway.Request{Route: "route", Timeout: timeout(r)}
	}}
}

// byT is the timeout in milliseconds that a client sends in the field T.
func byT(r *http.Request) time.Duration { return httpgate.TimeoutHeader("T", time.Millisecond)(r) }

// A slowly is a handler that takes as long as it is told, in the time of a synctest bubble, unless its client is gone.
type slowly struct {
	takes  time.Duration
	status int
	ran    atomic.Int64
}

func (s *slowly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.ran.Add(1)
	select {
	case <-time.After(s.takes):
	case <-r.Context().Done():
	}
	if s.status != 0 {
		w.WriteHeader(s.status)
	}
}

// within sends h a GET whose context ends after left, and returns the status of the answer.
func within(t *testing.T, h http.Handler, left time.Duration) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), left)
	defer cancel()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	return w.Code
}

// saying sends h a GET with the header and returns the status of the answer.
func saying(h http.Handler, name, value string) int {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set(name, value)
	h.ServeHTTP(w, r)
	return w.Code
}

// teach lets 20 requests through h at once, so that it knows how long they take and has let no probe through.
func teach(h http.Handler) {
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { serve(h, "/") })
	}
	wg.Wait()
}

func TestRefusesAtOnceWhatCannotFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy, next := late(t), &slowly{takes: 100 * ms}
		mux := http.NewServeMux()
		mux.Handle("GET /{$}", middleware(t, nil, policy).Handler(next))
		teach(mux)
		began := time.Now()

		ctx, cancel := context.WithTimeout(t.Context(), 99*ms)
		defer cancel()
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		require.NotEmpty(t, w.Header().Get("Retry-After"))
		require.Zero(t, time.Since(began))
		require.EqualValues(t, 20, next.ran.Load())
		require.Equal(t, int64(1), policy.Stats().Refused)

		require.Equal(t, http.StatusOK, within(t, mux, 101*ms))
		require.Equal(t, http.StatusOK, serve(mux, "/").StatusCode, "no deadline")
		require.Equal(t, int64(1), policy.Stats().Refused)
	})
}

// A gate behind a ServeMux knows the pattern; one before it asks for it.
func TestLatenessIsByRoute(t *testing.T) {
	takes := map[string]time.Duration{"/slow": 100 * ms, "/quick": ms}
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { time.Sleep(takes[r.URL.Path]) })
	routes := func(wrap func(http.Handler) http.Handler) *http.ServeMux {
		mux := http.NewServeMux()
		mux.Handle("GET /slow", wrap(handler))
		mux.Handle("GET /quick", wrap(handler))
		return mux
	}
	for name, of := range map[string]func(t *testing.T) http.Handler{
		"behind a mux": func(t *testing.T) http.Handler { return routes(middleware(t, nil, late(t)).Handler) },
		"around a mux": func(t *testing.T) http.Handler {
			mux := routes(func(h http.Handler) http.Handler { return h })
			route := httpgate.PatternKey(mux)
			return middleware(t, &httpgate.Options{Request: func(r *http.Request) spillway.Request {
				return spillway.Request{Route: route(r)}
			}}, late(t)).Handler(mux)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := of(t)
				var wg sync.WaitGroup
				for range 20 {
					wg.Go(func() { serve(h, "/slow") })
					wg.Go(func() { serve(h, "/quick") })
				}
				wg.Wait()
				for path, want := range map[string]int{"/slow": 503, "/quick": 200, "/nowhere": 404} {
					ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
					defer cancel()
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
					require.Equal(t, want, w.Code, path)
				}
			})
		})
	}
}

func TestTheEarlierDeadlineCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := middleware(t, byClient(byT), late(t)).Handler(&slowly{takes: 100 * ms})
		teach(h)
		for _, c := range []struct {
			header string
			left   time.Duration
			want   int
		}{
			{"50", 0, 503}, {"50", time.Second, 503}, {"1000", 50 * ms, 503}, {"", 50 * ms, 503},
			{"150", 0, 200}, {"1000", time.Second, 200}, {"soon", 0, 200}, {"0", 0, 200}, {"-1", 0, 200},
		} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if c.header != "" {
				r.Header.Set("T", c.header)
			}
			if c.left != 0 {
				ctx, cancel := context.WithTimeout(t.Context(), c.left)
				defer cancel()
				r = r.WithContext(ctx)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, c.want, w.Code, "header %q, context %v", c.header, c.left)
		}
	})
}

// The timeout of a client ends the context of the handler, of requests with a body and without one. If it left too little
// time, it does not count against the service; if it left enough, it does.
func TestTimeoutEndsTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatetest.Recorder{}
		next := &slowly{takes: 200 * ms, status: http.StatusInternalServerError}
		h := middleware(t, byClient(byT), p).Handler(next)
		for _, body := range []io.Reader{nil, strings.NewReader("hello")} {
			for timeout, want := range map[string]spillway.Outcome{
				"1": spillway.Ignored, "99": spillway.Ignored, "150": spillway.Dropped, "201": spillway.Failure,
			} {
				r := httptest.NewRequest(http.MethodPost, "/", body)
				r.Header.Set("T", timeout)
				began := time.Now()
				h.ServeHTTP(httptest.NewRecorder(), r)
				d, _ := strconv.Atoi(timeout)
				require.Equal(t, min(time.Duration(d)*ms, next.takes), time.Since(began), timeout)
				require.NoError(t, r.Context().Err(), "that of the layers around the gate goes on")
				last := p.Outcomes()[len(p.Outcomes())-1]
				require.Equal(t, want, last, timeout)
			}
		}
		require.Zero(t, p.InFlight())
	})
}

// A request with a timeout reaches the handler and the layers around the gate as any other does.
func TestTimeoutKeepsTheRequest(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /items/{id}", func(w http.ResponseWriter, r *http.Request) {
		by, ok := r.Context().Deadline()
		assert.True(t, ok)
		assert.InDelta(t, time.Minute.Seconds(), time.Until(by).Seconds(), 30)
		assert.Equal(t, "7", r.PathValue("id"))
		_, err := io.WriteString(w, r.FormValue("a"))
		assert.NoError(t, err)
	})
	h := middleware(t, byClient(byT), admitter{}).Handler(mux)
	for _, body := range []string{"", "a=b"} {
		var reader io.Reader
		if body != "" {
			reader = strings.NewReader(body)
		}
		r := httptest.NewRequest(http.MethodPost, "/items/7", reader)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("T", "60000")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, strings.TrimPrefix(body, "a="), w.Body.String())
		require.Equal(t, "POST /items/{id}", r.Pattern, "known outside")
		_, bounded := r.Context().Deadline()
		require.False(t, bounded)
	}
}

func TestNeverStartsWhatHasEnded(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for _, ctx := range []context.Context{gone, expired} {
		p := &gatetest.Recorder{}
		gate := spillway.New(late(t), p)
		m, err := httpgate.New(gate, nil)
		require.NoError(t, err)
		w := httptest.NewRecorder()
		m.Handler(unreachable(t)).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Empty(t, p.Requests())
		require.Equal(t, int64(1), gate.Stats().Cancelled)
	}
}

func TestLongLivedIsNotJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := middleware(t, byClient(byT), late(t)).Handler(&slowly{takes: 100 * ms})
		teach(h)
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("T", "1")
		r.Header.Set("Accept", "text/event-stream")
		began := time.Now()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, 100*ms, time.Since(began), "nor ended")
	})
}

func TestTooLateOverTheWire(t *testing.T) {
	policy := late(t)
	for range 20 {
		policy.Done(spillway.Request{Route: "route", Arrived: time.Now()}, 0, spillway.Result{Outcome: spillway.Success, Latency: time.Hour})
	}
	h := middleware(t, byClient(httpgate.ClientTimeout), policy).Handler(answer(http.StatusOK))
	for url, client := range bothProtocols(t, h) {
		for _, c := range []struct {
			name, value string
			grpc        bool
		}{
			{"Grpc-Timeout", "1S", true}, {"Connect-Timeout-Ms", "1000", false}, {"X-Envoy-Expected-Rq-Timeout-Ms", "1000", false},
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
			require.NoError(t, err)
			req.Header.Set(c.name, c.value)
			want := "503 "
			if c.grpc {
				req.Header.Set("Content-Type", "application/grpc")
				want = "200 4"
			}
			res, err := client.Do(req)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, want, strconv.Itoa(res.StatusCode)+" "+res.Header.Get("Grpc-Status"), c.name)
		}
	}
}

func TestClientTimeout(t *testing.T) {
	for _, c := range []struct {
		want   time.Duration
		fields map[string]string
	}{
		{0, nil},
		{0, map[string]string{"Grpc-Timeout": "100m"}}, // not a call of gRPC
		{100 * ms, map[string]string{"Grpc-Timeout": "100m", "Content-Type": "application/grpc+proto"}},
		{1, map[string]string{"Grpc-Timeout": "0m", "Content-Type": "application/grpc"}},
		{100 * ms, map[string]string{"Connect-Timeout-Ms": "100"}},
		{1, map[string]string{"Connect-Timeout-Ms": "0"}},
		{100 * ms, map[string]string{"X-Envoy-Expected-Rq-Timeout-Ms": "100"}},
		{0, map[string]string{"X-Envoy-Expected-Rq-Timeout-Ms": "0"}}, // none, to Envoy
		{50 * ms, map[string]string{"X-Envoy-Expected-Rq-Timeout-Ms": "100", "Connect-Timeout-Ms": "50"}},
		{50 * ms, map[string]string{"X-Envoy-Expected-Rq-Timeout-Ms": "50", "Connect-Timeout-Ms": "100"}},
		{0, map[string]string{"X-Envoy-Expected-Rq-Timeout-Ms": "-50", "Connect-Timeout-Ms": "soon"}},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		for name, value := range c.fields {
			r.Header.Set(name, value)
		}
		require.Equal(t, c.want, httpgate.ClientTimeout(r), "%v", c.fields)
	}
}

// A service with a timeout of its own calls another one, which learns how much time is left.
func TestTheRemainingTimeIsPassedOn(t *testing.T) {
	for _, c := range []struct {
		field, unit, has, want string
		left                   time.Duration
	}{
		{"Connect-Timeout-Ms", "", "", "100", 100 * ms},
		{"X-Left", "", "", "1", 100 * time.Microsecond},
		{"Grpc-Timeout", "", "", "100m", 100 * ms},
		{"Grpc-Timeout", "", "", "99999999m", 1000 * time.Hour},
		{"Connect-Timeout-Ms", "", "50", "50", 100 * ms},
		{"Connect-Timeout-Ms", "", "500", "100", 100 * ms},
		{"Connect-Timeout-Ms", "", "soon", "100", 100 * ms},
		{"Connect-Timeout-Ms", "", "", "", 0},
		{"Connect-Timeout-Ms", "", "500", "500", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got string
			base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
				got = r.Header.Get(c.field)
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
			})
			client, err := httpgate.NewTransport(spillway.New(), base, &httpgate.TransportOptions{TimeoutHeader: strings.ToLower(c.field)})
			require.NoError(t, err)
			for _, body := range []io.Reader{nil, slowReader{0}} {
				ctx := t.Context()
				if c.left > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.left)
					defer cancel()
				}
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://a/", body)
				require.NoError(t, err)
				if c.has != "" {
					r.Header.Set(c.field, c.has)
				}
				res, err := client.RoundTrip(r)
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				require.Same(t, r, res.Request)
				require.Equal(t, c.want, got, "%+v", c)
				require.Equal(t, c.has, r.Header.Get(c.field), "a RoundTripper must not modify its request")
				r.Header = nil
				if c.left > 0 {
					_, err = client.RoundTrip(r)
					require.NoError(t, err, "no header at all")
				}
			}
		})
	}
	_, err := httpgate.NewTransport(spillway.New(), nil, &httpgate.TransportOptions{TimeoutHeader: "X Left"})
	require.EqualError(t, err, `httpgate: TimeoutHeader: must be a header field, got "X Left"`)
}

// Through two gated services and a Transport between them.
func TestTheRemainingTimeReachesTheSecondService(t *testing.T) {
	var left time.Duration
	second := httptest.NewServer(middleware(t, byClient(httpgate.ClientTimeout)).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		by, _ := r.Context().Deadline()
		left = time.Until(by)
	})))
	defer second.Close()
	transport, err := httpgate.NewTransport(spillway.New(), nil, &httpgate.TransportOptions{TimeoutHeader: "Connect-Timeout-Ms"})
	require.NoError(t, err)
	defer transport.CloseIdleConnections()
	first := middleware(t, byClient(httpgate.ClientTimeout)).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		out, err := http.NewRequestWithContext(r.Context(), http.MethodGet, second.URL, nil)
		assert.NoError(t, err)
		res, err := (&http.Client{Transport: transport}).Do(out)
		if assert.NoError(t, err) {
			assert.NoError(t, res.Body.Close())
		}
	}))
	require.Equal(t, http.StatusOK, saying(first, "Connect-Timeout-Ms", "60000"))
	require.Greater(t, left, 10*time.Second)
	require.Less(t, left, time.Minute)
}

// Gates of a fleet of clients and routes at once, under -race.
func TestConcurrentDeadlines(t *testing.T) {
	policy := spillway.Must(deadline.New(&deadline.Options{MaxRoutes: 5}))
	m := middleware(t, &httpgate.Options{Request: func(r *http.Request) spillway.Request {
		return spillway.Request{Route: r.URL.Path, Timeout: httpgate.TimeoutHeader("T", 1)(r)}
	}}, policy)
	h := m.Handler(answer(http.StatusOK))
	var wg sync.WaitGroup
	var refused atomic.Int64
	for range 4 {
		wg.Go(func() {
			for i := range 1000 {
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodGet, fmt.Sprint("/", i%10), nil)
				if i%50 > 0 {
					r.Header.Set("T", fmt.Sprint(i%50))
				}
				h.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, refused.Load(), policy.Stats().Refused)
	require.Positive(t, refused.Load())
	require.Equal(t, 5, policy.Stats().Routes)
}

func ExampleClientTimeout() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /report/{id}", hello)
	route := httpgate.PatternKey(mux)
	gated := httpgate.Handler(spillway.New(spillway.Must(deadline.New(nil))), &httpgate.Options{
		Request: func(r *http.Request) spillway.Request {
			timeout := min(cmp.Or(httpgate.ClientTimeout(r), 2*time.Second), 2*time.Second)
			return spillway.Request{Route: route(r), Timeout: timeout}
		},
	})(mux)

	fmt.Println(status(gated, "/report/7"))
	// Output: 200
}
