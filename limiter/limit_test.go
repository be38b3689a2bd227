package limiter

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
)

func TestZeroValuesDeny(t *testing.T) {
	ctx := t.Context()
	for _, p := range []spillway.Policy{new(Keyed), new(Registry)} {
		for _, r := range []spillway.Request{{}, {Arrived: start}, {Arrived: time.Now(), Cost: 3, Key: "a"}, {Cost: -1}} {
			_, err := p.Admit(ctx, r)
			require.ErrorIs(t, err, spillway.ErrRejected, "%T", p)
		}
		if q, ok := p.(quoter); ok {
			require.Zero(t, q.Quota(start, spillway.Request{}).Limit)
		}
	}
	require.ErrorContains(t, new(Keyed).Tune(Bucket{}), "a zero Keyed has no limit to tune")
	require.False(t, new(Keyed).Allow("a"), "a zero value cannot be brought to life")
	require.Nil(t, new(Keyed).Rule())
	require.Error(t, new(Keyed).AllowAt(start, "a", 1))
	require.Error(t, new(Keyed).Wait(ctx, "a", 1))
	require.Zero(t, new(Keyed).Stats())
	require.Zero(t, new(Keyed).PeekAt(start, "a"))
	new(Keyed).RefundAt(start, "a", 1)
	_, ok := new(Registry).Lookup("a")
	require.False(t, ok)
	_, ok = new(Registry).Lookup("")
	require.False(t, ok)
	require.Zero(t, new(Registry).Stats())
	var r Reservation
	r.CancelAt(time.Now())
	require.Zero(t, r.Delay())
}

// A quoter is what httpgate asks for the figures of its headers.
type quoter interface {
	Quota(now time.Time, r spillway.Request) spillway.Quota
}

// setLimit changes the Limit of a rule while it runs.
func setLimit(l Limiter, n int) error {
	rule := l.Rule()
	switch r := rule.(type) {
	case FixedWindow:
		r.Limit = n
		rule = r
	case SlidingWindow:
		r.Limit = n
		rule = r
	case SlidingLog:
		r.Limit = n
		rule = r
	case Concurrency:
		r.Limit = n
		rule = r
	case Queue:
		r.Limit = n
		rule = r
	}
	return l.Tune(rule)
}

// setRate changes the Rate of a rule while it runs.
func setRate(l Limiter, now time.Time, rate Rate) error {
	rule := l.Rule()
	switch r := rule.(type) {
	case Bucket:
		r.Rate = rate
		rule = r
	case WarmUp:
		r.Rate = rate
		rule = r
	case Shaper:
		r.Rate = rate
		rule = r
	}
	return l.TuneAt(now, rule)
}

// directs returns the limits that count tokens, each with a Limit of three.
func directs(t *testing.T) map[string]direct {
	t.Helper()
	return map[string]direct{
		"Bucket":  newBucket(t, Per(3, time.Second), 3),
		"Policer": spillway.Must(New(Bucket{Rate: Per(3, time.Second), Name: "leaky bucket"})),
		"Window":  newWindow(t, FixedWindow{Limit: 3, Period: time.Second}),
		"Sliding": newSliding(t, 3, time.Second, 1000),
		"Log":     newLog(t, 3, time.Second),
		"WarmUp":  newWarmUp(t, WarmUp{Rate: Per(3, time.Second)}),
	}
}

func TestCosts(t *testing.T) {
	for name, l := range directs(t) {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{4, -1, math.MaxInt, math.MinInt} {
				err := l.AllowAt(after(0), n)
				var cost *CostError
				require.ErrorAs(t, err, &cost, "%d", n)
				require.Equal(t, []int{n, 3}, []int{cost.Cost, cost.Max})
				var rej *spillway.Rejection
				require.ErrorAs(t, err, &rej)
				require.Zero(t, rej.RetryAfter)
				_, err = l.ReserveAt(after(0), n, never)
				require.ErrorAs(t, err, &cost)

				_, err = l.Admit(t.Context(), spillway.Request{Arrived: after(0), Cost: n})
				require.Same(t, rej, err, "a gate gets the rejection itself")
				require.Equal(t, map[bool]string{true: "cost is negative", false: "cost exceeds limit"}[n < 0], rej.Reason)
			}
			require.NoError(t, l.AllowAt(after(0), 0))
			require.Equal(t, int64(3), l.PeekAt(after(0)).Remaining, "nothing was taken")
			require.NoError(t, l.AllowAt(after(0), 3))
			require.NoError(t, l.AllowAt(after(0), 0), "nothing is always there", name)
		})
	}
	require.EqualError(t, &CostError{Limit: "x", Cost: -2}, "limiter: x: cost must not be negative, got -2")
}

func TestRefusedIsGivenBack(t *testing.T) {
	for name, l := range directs(t) {
		t.Run(name, func(t *testing.T) {
			gate := spillway.New(l, refuser{})
			for range 100 {
				_, err := gate.Enter(t.Context(), spillway.Request{Arrived: after(0), Cost: 3})
				require.ErrorIs(t, err, errRefused)
			}
			require.True(t, l.Idle(after(0)))
			gate = spillway.New(l)
			permit, err := gate.Enter(t.Context(), spillway.Request{Arrived: after(0), Cost: 3})
			require.NoError(t, err)
			permit.DoneAt(after(0), spillway.Failure, 0)
			require.Zero(t, l.PeekAt(after(0)).Remaining, "it ran")
			require.Equal(t, int64(100), l.Stats().Returned)
		})
	}
}

var errRefused = &spillway.Rejection{Policy: "refuser", Reason: "always"}

type refuser struct{}

func (refuser) Admit(context.Context, spillway.Request) (spillway.Ticket, error) {
	return 0, errRefused
}
func (refuser) Done(spillway.Request, spillway.Ticket, spillway.Result) {}

func TestWait(t *testing.T) {
	for name := range directs(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := directs(t)[name].(Limiter)
				begin := time.Now()
				took := func() time.Duration { return time.Since(begin).Round(20 * time.Millisecond) }
				require.NoError(t, l.Wait(t.Context(), 3))
				require.Zero(t, took())
				require.NoError(t, l.Wait(t.Context(), 3))
				require.Equal(t, time.Second, took())

				var cost *CostError
				require.ErrorAs(t, l.Wait(t.Context(), 4), &cost)
				ctx, cancel := context.WithTimeout(t.Context(), 990*time.Millisecond)
				require.ErrorIs(t, l.Wait(ctx, 3), spillway.ErrRejected, "it would take too long")
				cancel()
				require.ErrorIs(t, l.Wait(ctx, 1), context.Canceled)
				require.Equal(t, time.Second, took(), "all at once")

				ctx, cancel = context.WithCancel(t.Context())
				go func() {
					time.Sleep(500 * time.Millisecond)
					cancel()
				}()
				require.ErrorIs(t, l.Wait(ctx, 3), context.Canceled)
				require.Equal(t, 1500*time.Millisecond, took())
				require.NoError(t, l.Wait(t.Context(), 3), "the cancelled one has given its tokens back")
				require.Equal(t, 2*time.Second, took())
			})
		})
	}
}

// Methods without a time read the clock.
func TestNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t, Per(1, time.Second), 1)
		require.True(t, b.Allow())
		require.False(t, b.Allow())
		require.False(t, b.Allow(), "without a lock")
		time.Sleep(time.Second - 1)
		require.False(t, b.Allow())
		time.Sleep(time.Nanosecond)
		require.True(t, b.Allow())
		r, err := b.ReserveAt(time.Now(), 1, time.Minute)
		require.NoError(t, err)
		require.Equal(t, time.Second, r.Delay())
		require.Equal(t, 2*time.Second, b.PeekAt(readClock()).NextIn)
		r.CancelAt(time.Now())
		require.Equal(t, time.Second, b.PeekAt(readClock()).NextIn)
		require.NoError(t, b.Tune(Bucket{Rate: Per(10, time.Second), Burst: 1}))
		require.Equal(t, 100*time.Millisecond, b.PeekAt(readClock()).NextIn)
		require.Equal(t, int64(3), b.Stats().Refused)

		p := spillway.Must(New(Bucket{Rate: Per(1, time.Second), Burst: 5}))
		require.True(t, p.Allow())
		require.NoError(t, p.Tune(Bucket{Rate: Per(2, time.Second), Burst: 4}))
		require.Equal(t, State{Limit: 4, Remaining: 3, NextIn: time.Second / 2, FullIn: time.Second / 2}, p.PeekAt(readClock()))
		require.ErrorContains(t, p.Tune(Bucket{Burst: 1}), "limiter: Bucket: Rate.Per")

		day := newWindow(t, FixedWindow{Limit: 2, Calendar: EveryDay})
		require.True(t, day.Allow())
		require.True(t, day.Allow())
		require.False(t, day.Allow())
		time.Sleep(24 * time.Hour)
		require.True(t, day.Allow())

		w := newWarmUp(t, WarmUp{Rate: Per(1, time.Second)})
		require.True(t, w.Allow())
		require.NoError(t, setRate(w, time.Now(), Per(2, time.Second)))
		require.Equal(t, time.Second, w.PeekAt(readClock()).NextIn, "the old debt at the old rate")
	})
}

func TestNothingAllocates(t *testing.T) {
	if race.Enabled {
		t.Skip("allocations are not counted under the race detector: it adds its own")
	}
	allow, deny := newBucket(t, Per(1e9, time.Second), 0), newBucket(t, Per(1, 24*time.Hour), 1)
	deny.Allow()
	deny.Allow()
	_ = deny.AllowAt(time.Now(), 1)
	keyed := spillway.Must(NewKeyed(allow.Rule(), nil))
	keyed.Allow("a")
	now := time.Now()
	for name, f := range map[string]func(){
		"allow":         func() { allow.Allow() },
		"deny":          func() { deny.Allow() },
		"allow at":      func() { _ = allow.AllowAt(now, 1) },
		"deny at":       func() { _ = deny.AllowAt(now, 1) },
		"reserve":       func() { r, _ := allow.ReserveAt(now, 1, 0); r.CancelAt(now) },
		"known key":     func() { keyed.Allow("a") },
		"known key at":  func() { _ = keyed.AllowAt(now, "a", 1) },
		"peek":          func() { allow.PeekAt(now) },
		"peek at a key": func() { keyed.PeekAt(now, "a") },
	} {
		require.Zero(t, testing.AllocsPerRun(100, f), name)
	}
}
