package httpgate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

func TestInvalidOptionsAreNamed(t *testing.T) {
	_, err := httpgate.New(nil, nil)
	require.EqualError(t, err, "httpgate: gate: must be a Gate, got nil")
	_, err = httpgate.New(spillway.New(), &httpgate.Options{MaxLongLived: -1})
	require.EqualError(t, err, "httpgate: MaxLongLived: must be at least 0, got -1")
	_, err = httpgate.New(spillway.New(), &httpgate.Options{MaxLongLivedPerKey: -1})
	require.EqualError(t, err, "httpgate: MaxLongLivedPerKey: must be at least 0, got -1")
	_, err = httpgate.New(spillway.New(), &httpgate.Options{MinBudget: -time.Second})
	require.EqualError(t, err, "httpgate: MinBudget: must be at least 0, got -1s")

	require.PanicsWithError(t, "httpgate: gate: must be a Gate, got nil", func() { httpgate.Handler(nil, nil) })
	require.PanicsWithError(t, "httpgate: MaxLongLived: must be at least 0, got -1", func() {
		httpgate.Handler(spillway.New(), &httpgate.Options{MaxLongLived: -1})
	})
	require.PanicsWithValue(t, "httpgate: Handler: next must be a handler, got nil", func() {
		httpgate.Handler(spillway.New(), nil)(nil)
	})
}

func TestNilAndZeroOptionsAreTheDefaults(t *testing.T) {
	for _, o := range []*httpgate.Options{nil, {}} {
		p := &gatetest.Recorder{}
		m := middleware(t, o, p)
		require.Equal(t, http.StatusTeapot, serve(m.Handler(answer(http.StatusTeapot)), "/").StatusCode)
		require.Equal(t, http.StatusOK, serve(m.Handler(answer(http.StatusOK)), "/livez").StatusCode)
		require.Equal(t, []spillway.Outcome{spillway.Ignored}, p.Outcomes())
		require.Equal(t, int64(1), m.Stats().Exempt)
	}
}

func TestOptionsMayChangeAfterNew(t *testing.T) {
	o := &httpgate.Options{}
	m := middleware(t, o, refuser{errFull})
	o.Exempt = func(*http.Request) bool { return true }
	require.Equal(t, http.StatusServiceUnavailable, serve(m.Handler(unreachable(t)), "/").StatusCode)
}

func TestProbesAreServedWhenEverythingIsShed(t *testing.T) {
	gate := shut()
	m, err := httpgate.New(gate, nil)
	require.NoError(t, err)
	h := m.Handler(answer(http.StatusNoContent))
	exempt := []string{"/healthz", "/livez", "/readyz", "/metrics"}
	for _, path := range exempt {
		require.Equal(t, http.StatusNoContent, serve(h, path).StatusCode, path)
	}
	for _, path := range []string{"/", "/livez/", "/healthzz", "/api/livez", "/debug/pprof", "/debug/pprof/", "/debug/pprof/heap", "/debug/vars"} {
		require.Equal(t, http.StatusServiceUnavailable, serve(h, path).StatusCode, path)
	}
	require.Equal(t, int64(len(exempt)), m.Stats().Exempt)
	require.Zero(t, gate.Stats().Admitted)
}

func TestExemptPathsMustBeClean(t *testing.T) {
	for _, p := range []string{"", "healthz", "/a/../b", "//a", "/a//b", "/.", "."} {
		require.PanicsWithValue(t, fmt.Sprintf("httpgate: ExemptPaths: paths: must be clean and begin with a slash, got %q", p),
			func() { httpgate.ExemptPaths("/ok", p) })
	}
	require.NotPanics(t, func() { httpgate.ExemptPaths("/", "/a/", "/a") })
}

func TestExemptRequestGetsTheWriterOfTheServer(t *testing.T) {
	m := middleware(t, &httpgate.Options{Exempt: func(*http.Request) bool { return true }}, refuser{errFull})
	w := httptest.NewRecorder()
	m.Handler(http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) { assert.Same(t, w, got) })).
		ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
}

func TestRequestTellsThePolicies(t *testing.T) {
	p := &gatetest.Recorder{}
	m := middleware(t, &httpgate.Options{Request: func(r *http.Request) spillway.Request {
		return spillway.Request{Key: r.Header.Get("Tenant"), Priority: spillway.Critical, Cost: 3}
	}}, p)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Tenant", "acme")
	m.Handler(answer(200)).ServeHTTP(httptest.NewRecorder(), r)
	require.Len(t, p.Requests(), 1)
	got := p.Requests()[0]
	got.Arrived = time.Time{}
	require.Equal(t, spillway.Request{Key: "acme", Priority: spillway.Critical, Cost: 3}, got)
}

func TestDefaultOutcome(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for _, c := range []struct {
		ctx    context.Context
		status int
		want   spillway.Outcome
	}{
		{t.Context(), 200, spillway.Success},
		{t.Context(), 204, spillway.Success},
		{t.Context(), 302, spillway.Success},
		{t.Context(), 304, spillway.Success},
		{t.Context(), 400, spillway.Ignored},
		{t.Context(), 404, spillway.Ignored},
		{t.Context(), 429, spillway.Dropped},
		{t.Context(), 499, spillway.Ignored},
		{t.Context(), 500, spillway.Failure},
		{t.Context(), 503, spillway.Dropped},
		{t.Context(), 504, spillway.Failure},
		{t.Context(), 599, spillway.Failure},
		{gone, 200, spillway.Ignored},
		{gone, 500, spillway.Ignored},
		{gone, 503, spillway.Ignored},
		{late, 200, spillway.Dropped},
		{late, 404, spillway.Dropped},
		{late, 500, spillway.Dropped},
	} {
		require.Equal(t, c.want, httpgate.DefaultOutcome(c.ctx, c.status), "status %d, ctx %v", c.status, c.ctx.Err())
	}
}

func TestOutcomeReachesThePoliciesFromTheStatus(t *testing.T) {
	for status, want := range map[int]spillway.Outcome{
		200: spillway.Success, 404: spillway.Ignored, 500: spillway.Failure, 503: spillway.Dropped,
	} {
		require.Equal(t, want, served(t, answer(status)), "status %d", status)
	}
	require.Equal(t, spillway.Success, served(t, func(http.ResponseWriter, *http.Request) {}), "nothing written")
}

func TestOutcomeOptionDecides(t *testing.T) {
	p := &gatetest.Recorder{}
	var statuses []int
	m := middleware(t, &httpgate.Options{Outcome: func(r *http.Request, status int) spillway.Outcome {
		statuses = append(statuses, status)
		if r.URL.Path == "/search" && status == http.StatusNotFound {
			return spillway.Success
		}
		return httpgate.DefaultOutcome(r.Context(), status)
	}}, p)
	serve(m.Handler(answer(http.StatusNotFound)), "/search")
	serve(m.Handler(answer(http.StatusNotFound)), "/")
	serve(m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), "/")
	require.Equal(t, []int{404, 404, 200}, statuses)
	require.Equal(t, []spillway.Outcome{spillway.Success, spillway.Ignored, spillway.Success}, p.Outcomes())
}

func TestPanicPassesThroughUntouchedAndGivesBackOnce(t *testing.T) {
	for name, value := range map[string]any{"abort": http.ErrAbortHandler, "error": errors.New("boom"), "string": "boom"} {
		t.Run(name, func(t *testing.T) {
			p := &gatetest.Recorder{}
			h := middleware(t, nil, p).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusOK)
				panic(value)
			}))
			func() {
				defer func() {
					if got := recover(); got != value {
						t.Errorf("recovered %v instead of the handler's own %v", got, value)
					}
				}()
				serve(h, "/")
			}()
			require.Equal(t, []spillway.Outcome{spillway.Failure}, p.Outcomes())
			require.Zero(t, p.InFlight())
		})
	}
}

func TestAbortedHandlerLooksTheSameToTheClient(t *testing.T) {
	p := &gatetest.Recorder{}
	h := middleware(t, nil, p).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	for url, client := range bothProtocols(t, h) {
		_, err := client.Get(url)
		require.Error(t, err)
	}
	require.Subset(t, []spillway.Outcome{spillway.Failure}, p.Outcomes())
	require.Zero(t, p.InFlight())
}

func TestPanicAfterTheClientLeftIsIgnored(t *testing.T) {
	p := &gatetest.Recorder{}
	ctx, cancel := context.WithCancel(t.Context())
	h := middleware(t, nil, p).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		cancel()
		panic(http.ErrAbortHandler)
	}))
	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	})
	require.Equal(t, []spillway.Outcome{spillway.Ignored}, p.Outcomes())
}

func TestPanicInOutcomeGivesBack(t *testing.T) {
	p := &gatetest.Recorder{}
	m := middleware(t, &httpgate.Options{Outcome: func(*http.Request, int) spillway.Outcome { panic("boom") }}, p)
	require.PanicsWithValue(t, "boom", func() { serve(m.Handler(answer(200)), "/") })
	require.Equal(t, []spillway.Outcome{spillway.Failure}, p.Outcomes())
}

func TestGoexitGivesBack(t *testing.T) {
	p := &gatetest.Recorder{}
	h := middleware(t, nil, p).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runtime.Goexit() }))
	var wg sync.WaitGroup
	wg.Go(func() { serve(h, "/") })
	wg.Wait()
	require.Equal(t, []spillway.Outcome{spillway.Failure}, p.Outcomes())
	require.Zero(t, p.InFlight())
}

func TestNothingIsRunForAClientThatIsGone(t *testing.T) {
	p := &gatetest.Recorder{}
	gate := spillway.New(p)
	h := httpgate.Handler(gate, nil)(unreachable(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Empty(t, p.Requests())
	require.Zero(t, gate.Stats().Refused)
	require.Equal(t, int64(1), gate.Stats().Cancelled)
}

func TestNothingIsRunAfterTheDeadline(t *testing.T) {
	p := &gatetest.Recorder{}
	gate := spillway.New(p)
	h := httpgate.Handler(gate, nil)(unreachable(t))
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Empty(t, p.Requests())
	require.Zero(t, gate.Stats().Refused)
	require.Equal(t, int64(1), gate.Stats().Cancelled)
}

// queue is a Policy in which requests wait until their context ends.
type queue struct{ entered, left chan struct{} }

func (q queue) Queues() bool { return true }
func (q queue) Admit(ctx context.Context, _ spillway.Request) (spillway.Ticket, error) {
	q.entered <- struct{}{}
	<-ctx.Done()
	q.left <- struct{}{}
	return 0, ctx.Err()
}
func (q queue) Done(spillway.Request, spillway.Ticket, spillway.Result) {}

func TestClientThatLeavesTheQueueIsNotCountedAsShed(t *testing.T) {
	before, q := &gatetest.Recorder{}, queue{make(chan struct{}), make(chan struct{})}
	gate := spillway.New(before, q)
	returned := make(chan struct{}, 1)
	h := httpgate.Handler(gate, nil)(unreachable(t))
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		returned <- struct{}{}
	})
	for url, client := range bothProtocols(t, outer) {
		cancelled := gate.Stats().Cancelled
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		require.NoError(t, err)
		go func() {
			<-q.entered
			cancel()
		}()
		_, err = client.Do(req)
		require.ErrorIs(t, err, context.Canceled)
		<-q.left
		<-returned
		require.Zero(t, before.InFlight())
		require.Zero(t, gate.Stats().Refused)
		require.Zero(t, gate.Stats().InFlight)
		require.Equal(t, cancelled+1, gate.Stats().Cancelled)
	}
}

// burn is a handler that ignores its context and takes 200 ms.
func burn(http.ResponseWriter, *http.Request) { time.Sleep(200 * time.Millisecond) }

func TestGateInsideTimeoutHandlerHoldsThePermitAsLongAsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatetest.Recorder{}
		h := http.TimeoutHandler(middleware(t, &httpgate.Options{MinBudget: 20 * time.Millisecond}, p).Handler(http.HandlerFunc(burn)), 20*time.Millisecond, "late")
		require.Equal(t, http.StatusServiceUnavailable, serve(h, "/").StatusCode)
		require.Equal(t, 1, p.InFlight(), "the work goes on, so its permit must be held")
		time.Sleep(time.Second)
		require.Equal(t, []spillway.Outcome{spillway.Dropped}, p.Outcomes())
		require.Equal(t, 200*time.Millisecond, p.Results()[0].Latency)
	})
}

func TestGateOutsideTimeoutHandlerLosesSightOfTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatetest.Recorder{}
		h := middleware(t, nil, p).Handler(http.TimeoutHandler(http.HandlerFunc(burn), 20*time.Millisecond, "late"))
		require.Equal(t, http.StatusServiceUnavailable, serve(h, "/").StatusCode)
		require.Equal(t, []spillway.Outcome{spillway.Dropped}, p.Outcomes())
		require.Equal(t, 20*time.Millisecond, p.Results()[0].Latency, "the documented flaw of this order")
		time.Sleep(time.Second)
	})
}
