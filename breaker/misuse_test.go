package breaker_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
)

var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func TestZeroValuesDeny(t *testing.T) {
	ctx := context.Background()
	for _, p := range []spillway.Policy{new(breaker.Breaker), new(breaker.Throttle), new(breaker.Keyed)} {
		for _, r := range []spillway.Request{{Arrived: noon}, {Arrived: noon, Key: "a"}} {
			_, err := p.Admit(ctx, r)
			require.ErrorIs(t, err, spillway.ErrRejected, "%T", p)
			var rej *spillway.Rejection
			require.ErrorAs(t, err, &rej)
			require.Equal(t, "breaker is not made", rej.Reason)
			p.Done(r, 0, spillway.Result{})
			p.Done(r, 1<<62, spillway.Result{Outcome: spillway.Failure})
			p.Done(r, 1<<63, spillway.Result{Outcome: spillway.Success})
		}
	}
	b := new(breaker.Breaker)
	require.Equal(t, breaker.Open, b.Stats().State)
	require.Equal(t, breaker.Stats{State: breaker.Open, Reason: "breaker is not made"}, b.Stats())
	require.Error(t, b.SetMode(time.Now(), breaker.ForcedClosed))
	require.Error(t, b.Tune(breaker.Options{}))
	_ = b.SetState(time.Now(), breaker.Closed, 0)
	_, err := b.Admit(ctx, spillway.Request{Arrived: noon})
	require.ErrorIs(t, err, spillway.ErrRejected, "a zero value cannot be brought to life")
	th := new(breaker.Throttle)
	require.Error(t, th.Tune(breaker.ThrottleOptions{}))
	require.Zero(t, th.Stats())
	r := new(breaker.Keyed)
	require.Zero(t, r.Stats())
	_, found := r.Lookup("")
	require.False(t, found)
	require.Error(t, r.Tune(breaker.KeyedOptions{}))
	require.Zero(t, b.Options())
	require.Zero(t, th.Options())
	require.Zero(t, r.Options().MaxKeys)
	_, ok := r.Lookup("a")
	require.False(t, ok)
	for range r.All() {
		t.Fatal("there is none")
	}
}

func TestTypedNilIsRefused(t *testing.T) {
	for _, typed := range []breaker.Member{(*breaker.Breaker)(nil), (*breaker.Throttle)(nil)} {
		_, err := breaker.NewKeyed(&breaker.KeyedOptions{New: func(string) (breaker.Member, error) { return typed, nil }})
		require.EqualError(t, err, "breaker: Keyed: New: returned nil")
		r, err := breaker.NewKeyed(&breaker.KeyedOptions{New: func(key string) (breaker.Member, error) {
			if key == "bad" {
				return typed, nil
			}
			return breaker.New(nil)
		}})
		require.NoError(t, err)
		_, err = r.Admit(t.Context(), spillway.Request{Key: "bad", Arrived: noon})
		require.NoError(t, err, "by the shared one")
		require.Equal(t, int64(1), r.Stats().Failed)
	}
}

func TestAPanickingFactoryCounts(t *testing.T) {
	r, err := breaker.NewKeyed(&breaker.KeyedOptions{New: func(key string) (breaker.Member, error) {
		if key != "" {
			panic("no")
		}
		return breaker.New(nil)
	}})
	require.NoError(t, err)
	req := spillway.Request{Key: "a", Arrived: noon}
	require.Panics(t, func() { _, _ = r.Admit(t.Context(), req) })
	_, err = r.Admit(t.Context(), req)
	require.NoError(t, err, "by the shared one")
	require.Equal(t, int64(1), r.Stats().Failed)
}

// A share of the keys is exact: 0.57 of 100 are 57.
func TestMaxOpenIsExact(t *testing.T) {
	for _, c := range []struct {
		share      float64
		keys, open int
	}{{0.57, 100, 57}, {0.29, 100, 29}, {1.0 / 3, 6, 2}, {0.3, 10, 3}, {0.01, 10, 1}, {1, 7, 7}, {0.5, 3, 1}} {
		r, err := breaker.NewKeyed(&breaker.KeyedOptions{MaxOpen: c.share})
		require.NoError(t, err)
		for round := range 12 {
			for k := range c.keys {
				req := spillway.Request{Key: fmt.Sprint(k), Arrived: noon.Add(time.Duration(round) * time.Millisecond)}
				if tk, err := r.Admit(t.Context(), req); err == nil && round > 0 {
					r.Done(req, tk, spillway.Result{Outcome: spillway.Failure})
				} else if err == nil {
					r.Done(req, tk, spillway.Result{Outcome: spillway.Success})
				}
			}
		}
		require.Equal(t, int64(c.open), r.Stats().Open, "%v of %d", c.share, c.keys)
	}
}

// Calls that outlived their breaker end nowhere in the next one of the same key.
func TestStragglersOfAEvictedKey(t *testing.T) {
	r, err := breaker.NewKeyed(&breaker.KeyedOptions{MaxKeys: 1, New: func(string) (breaker.Member, error) {
		return breaker.New(&breaker.Options{Consecutive: 3, OpenFor: time.Second, MaxOpen: time.Second, Jitter: breaker.Off, ProbeLease: time.Second})
	}})
	require.NoError(t, err)
	at := noon
	admit := func(key string) (spillway.Request, spillway.Ticket) {
		t.Helper()
		req := spillway.Request{Key: key, Arrived: at}
		tk, err := r.Admit(t.Context(), req)
		require.NoError(t, err)
		return req, tk
	}
	type call struct {
		req spillway.Request
		tk  spillway.Ticket
	}
	var stragglers []call
	for range 5 {
		req, tk := admit("a")
		stragglers = append(stragglers, call{req, tk})
	}
	for range 3 {
		req, tk := admit("a")
		r.Done(req, tk, spillway.Result{Outcome: spillway.Failure})
	}
	at = at.Add(2 * time.Second)
	req, tk := admit("a") // a probe that reports too late
	stragglers = append(stragglers, call{req, tk})
	at = at.Add(time.Hour)
	admit("b") // a was given up
	require.Equal(t, int64(1), r.Stats().Evicted)
	at = at.Add(time.Hour)
	bReq, bTk := admit("b")
	r.Done(bReq, bTk, spillway.Result{Outcome: spillway.Success})
	// b still has a call in flight, so its place is not free until that ends.
	r.Done(spillway.Request{Key: "b", Arrived: noon.Add(2*time.Second + time.Hour)}, bTk, spillway.Result{Outcome: spillway.Success, Latency: time.Hour})
	at = at.Add(time.Hour)
	live, liveTk := admit("a")
	m, ok := r.Lookup("a")
	require.True(t, ok)
	b := m.(*breaker.Breaker)
	for _, s := range stragglers {
		r.Done(s.req, s.tk, spillway.Result{Outcome: spillway.Failure, Latency: at.Sub(s.req.Arrived)})
	}
	st := b.StatsAt(at)
	require.Equal(t, breaker.Closed, st.State)
	require.Equal(t, int64(1), st.InFlight)
	require.Zero(t, st.Consecutive)
	require.Equal(t, int64(6), st.Stale)
	r.Done(live, liveTk, spillway.Result{Outcome: spillway.Success})
	require.Zero(t, b.StatsAt(at).InFlight)
}

// One call from the future does not blind the rules of a rate, nor those of hanging calls.
func TestACallFromTheFuture(t *testing.T) {
	for _, o := range []breaker.Options{{Consecutive: breaker.Off}, {Consecutive: breaker.Off, SlowCall: time.Second, FailureRate: breaker.Off}} {
		b, err := breaker.New(&o)
		require.NoError(t, err)
		end := func(at time.Time, latency time.Duration, outcome spillway.Outcome) error {
			req := spillway.Request{Arrived: at}
			tk, err := b.Admit(t.Context(), req)
			if err == nil {
				b.Done(req, tk, spillway.Result{Outcome: outcome, Latency: latency})
			}
			return err
		}
		at := noon
		step := func(n int, latency time.Duration, outcome spillway.Outcome) (refused int) {
			for range n {
				if at = at.Add(50 * time.Millisecond); end(at, latency, outcome) != nil {
					refused++
				}
			}
			return refused
		}
		require.Zero(t, step(1000, 0, spillway.Success))
		require.NoError(t, end(at.Add(time.Hour), 0, spillway.Success))
		require.Zero(t, step(1000, 0, spillway.Success), "and all is well for a minute")
		counts := countsOf(b.StatsAt(at))
		require.InDelta(t, 200, counts.Successes, 25, "the window is that of the others")
		outcome, latency := spillway.Failure, time.Duration(0)
		if o.SlowCall > 0 {
			outcome, latency = spillway.Success, 2*time.Second
		}
		require.Positive(t, step(300, latency, outcome), "half of a window of 10 s")
		require.Zero(t, b.StatsAt(at).InFlight)
	}
}

// Calls that began while the window stood in the future end after it was wound back. They leave no hole in which as many hanging
// calls go unseen.
func TestCallsUnderWayWhileTheWindowIsWoundBack(t *testing.T) {
	b, err := breaker.New(&breaker.Options{Consecutive: breaker.Off, FailureRate: breaker.Off, SlowCall: time.Second})
	require.NoError(t, err)
	admit := func(at time.Time) (end func(outcome spillway.Outcome, latency time.Duration)) {
		req := spillway.Request{Arrived: at}
		tk, err := b.Admit(t.Context(), req)
		require.NoError(t, err)
		return func(outcome spillway.Outcome, latency time.Duration) {
			b.Done(req, tk, spillway.Result{Outcome: outcome, Latency: latency})
		}
	}
	admit(noon)(spillway.Success, 0)
	admit(noon.Add(time.Hour))(spillway.Success, 0)
	at := noon.Add(50 * time.Millisecond)
	var underWay []func(spillway.Outcome, time.Duration)
	for range 15 {
		underWay = append(underWay, admit(at))
	}
	for range 20 {
		admit(at)(spillway.Success, 0)
	}
	require.Less(t, b.StatsAt(at).Successes, int64(20), "it was wound back")
	for _, end := range underWay {
		end(spillway.Ignored, 0)
	}
	require.Zero(t, b.StatsAt(at).InFlight)
	for range 15 {
		admit(at)
	}
	require.EqualValues(t, 15, b.StatsAt(at.Add(3*time.Second)).Hung)
}

// One call from the future does not blind a Throttle: neither to failures nor to a dependency that is well again.
func TestAThrottleAndACallFromTheFuture(t *testing.T) {
	for _, failing := range []bool{false, true} {
		th, err := breaker.NewThrottle(&breaker.ThrottleOptions{Window: 10 * time.Second, RecoverAfter: breaker.Off, ProbeEvery: breaker.Off, Seed: 1})
		require.NoError(t, err)
		at := noon
		call := func(outcome spillway.Outcome) bool {
			req := spillway.Request{Arrived: at}
			tk, err := th.Admit(t.Context(), req)
			if err == nil {
				th.Done(req, tk, spillway.Result{Outcome: outcome})
			}
			return err == nil
		}
		calls := func(n int, outcome spillway.Outcome) (refused int) {
			for range n {
				if at = at.Add(20 * time.Millisecond); !call(outcome) {
					refused++
				}
			}
			return refused
		}
		before, after := spillway.Success, spillway.Failure
		if failing {
			before, after = after, before
		}
		calls(1000, before)
		now := at
		at = now.Add(time.Hour)
		call(spillway.Success)
		at = now
		calls(1000, after) // two windows
		require.LessOrEqual(t, th.StatsAt(at).Requests, int64(510), "the window is that of the others")
		if failing {
			require.Zero(t, calls(100, after))
		} else {
			require.Greater(t, calls(100, after), 50)
		}
		require.Zero(t, th.StatsAt(at).InFlight)
	}
}

// A few that come late do not move the window of a Throttle back, however many they are in the end.
func TestAThrottleAndSomeThatAreLate(t *testing.T) {
	th, err := breaker.NewThrottle(&breaker.ThrottleOptions{Window: 10 * time.Second})
	require.NoError(t, err)
	ask := func(at time.Time) {
		req := spillway.Request{Arrived: at}
		tk, err := th.Admit(t.Context(), req)
		require.NoError(t, err)
		th.Done(req, tk, spillway.Result{Outcome: spillway.Success})
	}
	ask(noon)
	now := noon.Add(time.Hour)
	for range 50 {
		ask(now)
		ask(noon)
		ask(now)
	}
	require.EqualValues(t, 150, th.StatsAt(now).Requests)
}

// A listener can be changed while the Breaker runs.
func TestTuneTakesAnotherListener(t *testing.T) {
	var first, second int
	b, err := breaker.New(&breaker.Options{OnEvent: func(breaker.Event) { first++ }})
	require.NoError(t, err)
	o := b.Options()
	o.Probes = 2
	require.NoError(t, b.Tune(o))
	require.NoError(t, b.SetMode(time.Now(), breaker.ForcedOpen))
	require.Equal(t, []int{1, 0}, []int{first, second})
	require.NoError(t, b.Tune(breaker.Options{OnEvent: func(breaker.Event) { second++ }}))
	_ = b.SetState(time.Now(), breaker.Closed, 0)
	require.Equal(t, []int{1, 1}, []int{first, second})
	require.NoError(t, b.Tune(breaker.Options{}))
	require.NoError(t, b.SetMode(time.Now(), breaker.ForcedOpen))
	require.Equal(t, []int{1, 1}, []int{first, second}, "a zero OnEvent means its default, none")
}

// What clients send as keys is not held.
func TestLongKeysAreNotHeld(t *testing.T) {
	r, err := breaker.NewKeyed(nil)
	require.NoError(t, err)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range 256 {
		long := fmt.Sprint(i) + strings.Repeat("x", 256<<10)
		for _, key := range []string{long, long[:20]} { // a long key, and a part of one
			req := spillway.Request{Key: key, Arrived: noon}
			for range 2 {
				tk, err := r.Admit(t.Context(), req)
				require.NoError(t, err)
				r.Done(req, tk, spillway.Result{Outcome: spillway.Success})
			}
			_, ok := r.Lookup(key)
			require.True(t, ok)
		}
	}
	require.Equal(t, int64(512), r.Stats().Keys)
	require.Less(t, int64(heap()-before), int64(16<<20), "the keys alone were 64 MiB")
	names := map[string]bool{}
	for name := range r.All() {
		require.LessOrEqual(t, len(name), 128)
		names[name] = true
	}
	require.Len(t, names, 512)
	require.False(t, names[strings.Repeat("x", 64)])
	runtime.KeepAlive(r)
}

// Hanging calls count in the rate of slow ones as if they had ended.
func TestSlowRateCountsHangingCalls(t *testing.T) {
	b, err := breaker.New(&breaker.Options{SlowCall: time.Second})
	require.NoError(t, err)
	for range 4 {
		_, err := b.Admit(t.Context(), spillway.Request{Arrived: noon})
		require.NoError(t, err)
	}
	for range 12 {
		r := spillway.Request{Arrived: noon}
		tk, err := b.Admit(t.Context(), r)
		require.NoError(t, err)
		b.Done(r, tk, spillway.Result{Outcome: spillway.Success})
	}
	st := b.StatsAt(noon.Add(5 * time.Second))
	require.Equal(t, int64(4), st.Hung)
	require.InDelta(t, 0.25, st.SlowRate, 0)
}
