package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// The tests in this file show what other breakers do not do.

// TestTimeoutsSlowerThanTheWindowOpen: each call fails after 15 s, the window is 10 s.
func TestTimeoutsSlowerThanTheWindowOpen(t *testing.T) {
	for name, o := range map[string]breaker.Options{
		"by rate": {Consecutive: off, MinCalls: 5},
		"by row":  {FailureRate: off},
	} {
		g, b := newBreakerRig(t, &o)
		began := g.now
		calls := 0
		for ; calls < 100 && b.StatsAt(g.now).State == breaker.Closed; calls++ {
			// One call begins each second, and ends 15 s later.
			g.now = began.Add(time.Duration(calls) * time.Second)
			c, err := g.admit()
			require.NoError(t, err)
			g.held[fmt.Sprint(calls)] = c
			if end := fmt.Sprint(calls - 15); calls >= 15 {
				g.done(g.held[end], spillway.Failure)
			}
		}
		require.Equal(t, breaker.Open, b.StatsAt(g.now).State, name)
		require.LessOrEqual(t, calls, 26, name)
	}
}

// goexit runs a call through a Gate on a goroutine that ends itself in the middle.
func goexit(t *testing.T, gate *spillway.Gate) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := spillway.Do(context.Background(), gate, spillway.Request{}, func(context.Context) error {
			runtime.Goexit()
			return nil
		})
		t.Error("not reached", err)
	}()
	<-done
}

func openByFailures(t *testing.T, gate *spillway.Gate) {
	for range 10 {
		p, err := gate.Enter(context.Background(), spillway.Request{})
		require.NoError(t, err)
		p.Done(spillway.Failure)
	}
}

func TestProbeThatGoexitsReopens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, &breaker.Options{Jitter: off, Probes: 1})
		gate := spillway.New(b)
		openByFailures(t, gate)
		time.Sleep(5 * time.Second)
		goexit(t, gate)
		require.Equal(t, breaker.Open, b.Stats().State)
		time.Sleep(10 * time.Second)
		require.NoError(t, spillway.Do(t.Context(), gate, spillway.Request{}, func(context.Context) error { return nil }))
		require.Equal(t, breaker.Closed, b.Stats().State)
	})
}

// TestProbeThatPanicsReopens: the panic passes through, the Breaker is open, and the next probe may come in time.
func TestProbeThatPanicsReopens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, &breaker.Options{Jitter: off, Probes: 1})
		gate := spillway.New(b)
		openByFailures(t, gate)
		time.Sleep(5 * time.Second)
		value := errors.New("the value")
		require.PanicsWithValue(t, value, func() {
			_ = spillway.Do(t.Context(), gate, spillway.Request{}, func(context.Context) error { panic(value) })
		})
		require.Equal(t, breaker.Open, b.Stats().State)
		time.Sleep(10 * time.Second)
		require.NoError(t, spillway.Do(t.Context(), gate, spillway.Request{}, func(context.Context) error { return nil }))
	})
}

// TestProbeThatNeverReportsIsLost: no Done at all, not even a day later.
func TestProbeThatNeverReportsIsLost(t *testing.T) {
	for _, wait := range []time.Duration{15 * time.Second, 24 * time.Hour, 1000 * time.Hour} {
		g, b := newBreakerRig(t, &breaker.Options{Consecutive: 1, Jitter: off, Probes: 1})
		g.run("F +5s >lost rej=5s +4999ms rej +1ms =open rej=10s")
		require.Equal(t, "probe lost", b.StatsAt(g.now).Reason)
		g.now = g.now.Add(wait)
		g.run("=half-open >p lost:S =half-open p:S =closed")
		require.EqualValues(t, 1, b.StatsAt(g.now).Stale)
	}
}

// TestHungProbeDoesNotWedgeUnasked: nobody asks while the lease runs out and the open time after it.
func TestHungProbeDoesNotWedgeUnasked(t *testing.T) {
	g, _ := newBreakerRig(t, &breaker.Options{Consecutive: 1, Jitter: off, Probes: 1})
	g.run("F +5s >lost +1000h =half-open >p rej p:S =closed")
}

func TestDoneTwiceCountsOnce(t *testing.T) {
	b := newBreaker(t, &breaker.Options{Consecutive: 2})
	p, err := spillway.New(b).Enter(t.Context(), spillway.Request{})
	require.NoError(t, err)
	p.Done(spillway.Failure)
	p.Done(spillway.Failure)
	require.Equal(t, breaker.Closed, b.Stats().State)
	require.EqualValues(t, 1, b.Stats().Failures)
}

func TestListenerMayCallBack(t *testing.T) {
	var b *breaker.Breaker
	var told []breaker.Event
	b = newBreaker(t, &breaker.Options{Consecutive: 1, Jitter: off, OnEvent: func(e breaker.Event) {
		told = append(told, e)
		_, _ = b.StatsAt(e.Time).State, b.StatsAt(e.Time)
		if len(told) == 1 {
			_ = b.SetState(e.Time, breaker.Closed, 0)
			_ = b.SetMode(e.Time, breaker.ForcedOpen)
			_ = b.Tune(b.Options())
			_ = b.SetState(e.Time, breaker.Closed, 0)
		}
		if len(told) > 20 {
			t.Fatal("too many events")
		}
	}})
	newRig(t, b).run("F =closed")
	requireChain(t, told)
	require.Equal(t, breaker.Closed, told[len(told)-1].To)
}

func requireChain(t *testing.T, events []breaker.Event) {
	t.Helper()
	at := breaker.Closed
	for _, e := range events {
		require.Equal(t, at, e.From)
		require.True(t, e.From != e.To || e.WouldOpen)
		at = e.To
	}
}

// TestSparseFailuresInARowOpen: 100 failures one after the other, 10 s apart.
func TestSparseFailuresInARowOpen(t *testing.T) {
	g, _ := newBreakerRig(t, &breaker.Options{Window: 30 * time.Second, FailureRate: off})
	g.run("F +10s F +10s F +10s F +10s F +10s F +10s F +10s F +10s F +10s =closed F =open")
}

func TestCancelledCallsDoNotOpen(t *testing.T) {
	b := newBreaker(t, &breaker.Options{Consecutive: 1})
	gate := spillway.New(b)
	for range 6 {
		ctx, cancel := context.WithCancel(t.Context())
		err := spillway.Do(ctx, gate, spillway.Request{}, func(ctx context.Context) error {
			cancel()
			return errors.New("read: connection reset, because the caller left")
		})
		require.Error(t, err)
	}
	require.Equal(t, breaker.Closed, b.Stats().State)
	require.EqualValues(t, 6, b.Stats().Ignored)
}

// TestSuccessFromClosedDoesNotCloseHalfOpen: a call let in while closed succeeds while the probe is under way.
func TestSuccessFromClosedDoesNotCloseHalfOpen(t *testing.T) {
	g, b := newBreakerRig(t, &breaker.Options{Consecutive: 1, Jitter: off, Probes: 1})
	g.run(">old F +5s >probe old:S =half-open rej probe:S =closed")
	require.EqualValues(t, 1, b.StatsAt(g.now).Stale)
}

// TestStragglersFreeNoProbes: ten probes, five calls from before end, and no more than ten probes are ever under way.
func TestStragglersFreeNoProbes(t *testing.T) {
	g, b := newBreakerRig(t, &breaker.Options{Consecutive: 1, Jitter: off, Probes: 10})
	g.run(">a >b >c >d >e F +5s >0 >1 >2 >3 >4 >5 >6 >7 >8 >9 a:S b:F c:I d:S e:R rej")
	require.Equal(t, 10, b.StatsAt(g.now).Probes)
}

// TestServerErrorsReachTheBreaker: behind HTTP, an answer of 500 is a failure and one of 404 is not, on either side.
func TestServerErrorsReachTheBreaker(t *testing.T) {
	for status, want := range map[int]breaker.State{
		http.StatusInternalServerError: breaker.Open, http.StatusBadGateway: breaker.Open,
		http.StatusNotFound: breaker.Closed, http.StatusOK: breaker.Closed,
	} {
		answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		b := newBreaker(t, &breaker.Options{Consecutive: 5})
		protected := httpgate.Handler(spillway.New(b), nil)(answer)
		for range 5 {
			w := httptest.NewRecorder()
			protected.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			require.Equal(t, status, w.Code)
		}
		require.Equal(t, want, b.Stats().State, "%d by a server", status)

		b = newBreaker(t, &breaker.Options{Consecutive: 5})
		server := httptest.NewServer(answer)
		client := http.Client{Transport: spillway.Must(httpgate.NewTransport(spillway.New(b), nil, nil))}
		for range 5 {
			resp, err := client.Get(server.URL)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		server.Close()
		require.Equal(t, want, b.Stats().State, "%d for a client", status)
	}
}

// TestRefusalSaysWhenToComeBack: class 503, a constant reason, and how long.
func TestRefusalSaysWhenToComeBack(t *testing.T) {
	g, _ := newBreakerRig(t, &breaker.Options{Consecutive: 1, Jitter: off})
	g.run("F +2s")
	_, err := g.admit()
	require.Equal(t, &spillway.Rejection{Policy: "breaker", Reason: "open", RetryAfter: 3 * time.Second}, err)
}

// TestThrottleKeepsProbing: 5000 failures in the window, then 100 000 attempts in 10 s. A dead dependency is still asked
// once in a second, and a share of 5 % gets through.
func TestThrottleKeepsProbing(t *testing.T) {
	for _, o := range []breaker.ThrottleOptions{{Seed: 1}, {Seed: 1, MaxRefusal: 1}} {
		g := newRig(t, newThrottle(t, &o))
		for range 5000 {
			g.call(spillway.Failure)
		}
		admitted := 0
		for range 100_000 {
			g.now = g.now.Add(100 * time.Microsecond)
			if g.call(spillway.Failure) {
				admitted++
			}
		}
		if o.MaxRefusal == 1 {
			require.InDelta(t, 25, admitted, 20)
		} else {
			require.InDelta(t, 5000, admitted, 300)
		}
	}
}
