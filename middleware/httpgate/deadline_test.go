package httpgate_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

const ms = time.Millisecond

func oneRoute(*http.Request) string { return "route" }

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
func teach(h http.Handler) { teachRoute(h, "") }

func teachRoute(h http.Handler, route string) {
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { saying(h, "Route", route) })
	}
	wg.Wait()
}

func TestInvalidDeadlineIsNamed(t *testing.T) {
	for want, o := range map[string]*httpgate.Deadline{
		"httpgate: Deadline.Route: must be set, got nil":           {},
		"httpgate: Deadline.MaxRoutes: must be at least 0, got -1": {Route: oneRoute, MaxRoutes: -1},
	} {
		_, err := httpgate.New(spillway.New(), &httpgate.Options{Deadline: o})
		require.EqualError(t, err, want)
	}
}

func TestRefusesAtOnceWhatCannotFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatetest.Recorder{}
		next := &slowly{takes: 100 * ms}
		m := middleware(t, &httpgate.Options{Deadline: &httpgate.Deadline{Route: oneRoute}}, p)
		h := m.Handler(next)
		teach(h)
		began := time.Now()

		ctx, cancel := context.WithTimeout(t.Context(), 99*ms)
		defer cancel()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		require.NotEmpty(t, w.Header().Get("Retry-After"))
		require.Zero(t, time.Since(began))
		require.EqualValues(t, 20, next.ran.Load())
		require.Len(t, p.Requests(), 20, "no policy heard of it")
		require.Equal(t, int64(1), m.Stats().TooLate)

		require.Equal(t, http.StatusOK, within(t, h, 101*ms))
		require.Equal(t, http.StatusOK, serve(h, "/").StatusCode, "no deadline")
		require.Equal(t, int64(1), m.Stats().TooLate)
	})
}

func TestEverythingInTimeRunsWithoutDeadlineOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &slowly{takes: 100 * ms}
		h := middleware(t, nil).Handler(next)
		teach(h)
		within(t, h, ms)
		require.EqualValues(t, 21, next.ran.Load())
	})
}

func TestTheEarlierDeadlineCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := middleware(t, &httpgate.Options{Deadline: &httpgate.Deadline{
			Route: oneRoute, Timeout: httpgate.TimeoutHeader("X-Request-Timeout", time.Second),
		}}).Handler(&slowly{takes: 100 * ms})
		teach(h)
		for _, c := range []struct {
			header string
			left   time.Duration
			want   int
		}{
			{"0.05", 0, 503}, {"0.05", time.Second, 503}, {"1", 50 * ms, 503}, {"", 50 * ms, 503},
			{"0.15", 0, 200}, {"1", time.Second, 200}, {"soon", 0, 200}, {"0", 0, 200}, {"-1", 0, 200},
		} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if c.header != "" {
				r.Header.Set("X-Request-Timeout", c.header)
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

// The word of a client refuses its own request, and does no more: if it ended the handler, a few impatient clients could
// make every policy believe that the service fails.
func TestTimeoutOfTheClientEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatetest.Recorder{}
		h := middleware(t, &httpgate.Options{Deadline: &httpgate.Deadline{
			Route: oneRoute, Timeout: httpgate.TimeoutHeader("X-Request-Timeout", time.Second),
		}}, p).Handler(&slowly{takes: 100 * ms})
		require.Equal(t, http.StatusOK, saying(h, "X-Request-Timeout", "0.001"))
		require.Equal(t, []spillway.Outcome{spillway.Success}, p.Outcomes())
	})
}

func TestNeverStartsWhatHasEnded(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for _, o := range []*httpgate.Options{nil, {Deadline: &httpgate.Deadline{Route: oneRoute}}} {
		for ctx, want := range map[context.Context]int{gone: http.StatusServiceUnavailable, late: http.StatusServiceUnavailable} {
			p := &gatetest.Recorder{}
			gate := spillway.New(p)
			m, err := httpgate.New(gate, o)
			require.NoError(t, err)
			w := httptest.NewRecorder()
			m.Handler(unreachable(t)).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			require.Equal(t, want, w.Code)
			require.Empty(t, p.Requests())
			require.Equal(t, int64(1), gate.Stats().Cancelled)
			require.Zero(t, m.Stats().TooLate, "it is the context that has ended")
		}
	}
}

func TestLongLivedIsNotJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &slowly{takes: 100 * ms}
		h := middleware(t, &httpgate.Options{Deadline: &httpgate.Deadline{
			Route: oneRoute, Timeout: httpgate.TimeoutHeader("X-Request-Timeout", time.Second),
		}}).Handler(next)
		teach(h)
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Request-Timeout", "0.001")
		r.Header.Set("Accept", "text/event-stream")
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
	})
}

// A gate behind a ServeMux knows the pattern; one before it asks for it.
func TestRouteFromServeMux(t *testing.T) {
	mux := http.NewServeMux()
	var before, behind []string
	note := func(routes *[]string, name func(*http.Request) string) *httpgate.Options {
		return &httpgate.Options{Deadline: &httpgate.Deadline{Route: func(r *http.Request) string {
			*routes = append(*routes, name(r))
			return ""
		}}}
	}
	inner := httpgate.Handler(spillway.New(), note(&behind, func(r *http.Request) string { return r.Pattern }))
	mux.Handle("GET /orders/{id}", inner(answer(http.StatusOK)))
	outer := httpgate.Handler(spillway.New(), note(&before, func(r *http.Request) string {
		_, pattern := mux.Handler(r)
		return pattern
	}))
	require.Equal(t, http.StatusOK, serve(outer(mux), "/orders/7").StatusCode)
	require.Equal(t, http.StatusNotFound, serve(outer(mux), "/nowhere").StatusCode)
	require.Equal(t, []string{"GET /orders/{id}", ""}, before)
	require.Equal(t, []string{"GET /orders/{id}"}, behind)
}

func TestTooLateOverTheWire(t *testing.T) {
	m := middleware(t, &httpgate.Options{Deadline: &httpgate.Deadline{
		Route: oneRoute, Timeout: httpgate.TimeoutHeader("Grpc-Timeout", 0),
	}})
	for url, client := range bothProtocols(t, m.Handler(answer(http.StatusOK))) {
		statuses := map[int]int{}
		for range 50 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			require.NoError(t, err)
			req.Header.Set("Grpc-Timeout", "1n")
			res, err := client.Do(req)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			statuses[res.StatusCode]++
		}
		require.GreaterOrEqual(t, statuses[http.StatusServiceUnavailable], 1, "nothing takes less than a nanosecond")
		require.Equal(t, 50, statuses[http.StatusServiceUnavailable]+statuses[http.StatusOK])
	}
}

func TestConcurrentDeadlines(t *testing.T) {
	m := middleware(t, &httpgate.Options{Deadline: &httpgate.Deadline{
		Route:   func(r *http.Request) string { return r.URL.Path },
		Timeout: httpgate.TimeoutHeader("T", 1), MaxRoutes: 5,
	}})
	h := m.Handler(answer(http.StatusOK))
	var wg sync.WaitGroup
	var mu sync.Mutex
	refused := int64(0)
	for range 4 {
		wg.Go(func() {
			for i := range 1000 {
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodGet, fmt.Sprint("/", i%10), nil)
				r.Header.Set("T", fmt.Sprint(i%50))
				h.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					mu.Lock()
					refused++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, refused, m.Stats().TooLate)
	require.Positive(t, refused)
}

func ExampleDeadline() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /report/{id}", hello)
	gated := httpgate.Handler(spillway.New(), &httpgate.Options{
		Deadline: &httpgate.Deadline{
			Route:   httpgate.PatternKey(mux),
			Timeout: httpgate.TimeoutHeader("X-Request-Timeout", time.Second),
		},
	})(mux)

	fmt.Println(status(gated, "/report/7"))
	// Output: 200
}
