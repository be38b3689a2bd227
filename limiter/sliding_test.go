package limiter

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

func newLog(t testing.TB, most int, window time.Duration) *limit[slidingState] {
	t.Helper()
	l, err := New(SlidingLog{Limit: most, Window: window})
	require.NoError(t, err)
	return l.(*limit[slidingState])
}

func newSliding(t testing.TB, most int, window time.Duration, buckets int) *limit[slidingState] {
	t.Helper()
	l, err := New(SlidingWindow{Limit: most, Window: window, Buckets: buckets})
	require.NoError(t, err)
	return l.(*limit[slidingState])
}

func TestSlidingLogDecides(t *testing.T) {
	const s = time.Second
	play(t, newLog(t, 3, 10*s), []call{
		{0, 1, true}, {4 * s, 2, true}, {4 * s, 1, false}, {10*s - 1, 1, false}, {10 * s, 1, true}, {10 * s, 1, false},
		{9 * s, 1, false}, {14*s - 1, 1, false}, {14 * s, 3, false}, {14 * s, 2, true}, {20 * s, 1, true}, {99 * s, 3, true},
	})
}

// At the edge of a fixed window twice the limit passes; here it does not.
func TestSlidingWindowHasNoEdge(t *testing.T) {
	const s = time.Second
	w := newSliding(t, 10, 60*s, 6)
	play(t, w, []call{{59 * s, 10, true}, {60 * s, 1, false}, {119*s - 1, 1, false}, {129 * s, 10, true}})
}

func TestSlidingLogAgainstModel(t *testing.T) {
	seeds(t, 20, func(t *testing.T, rng *rand.Rand) {
		limit := 1 + rng.IntN(8)
		l := newLog(t, limit, time.Minute)
		against(t, rng, l, &logModel{limit: limit, window: time.Minute}, limit, 20*time.Second, 2000)
		require.LessOrEqual(t, len(l.state.ring), max(2*limit, 4))
	})
}

// A sliding window never passes more than the limit in a window, and never less than it, while so many are asked for, in a
// window and a sub-window.
func TestSlidingWindowBounds(t *testing.T) {
	seeds(t, 40, func(t *testing.T, rng *rand.Rand) {
		limit, buckets := 1+rng.IntN(12), 1+rng.IntN(12)
		window := time.Duration(1 + rng.IntN(100_000))
		window = max(window, time.Duration(buckets))
		w := newSliding(t, limit, window, buckets)
		quantum := time.Duration(w.core.(*sliding).quantum)
		require.LessOrEqual(t, quantum, window/time.Duration(buckets)+1)
		var passed []time.Duration
		begin := time.Duration(0)
		for now := time.Duration(0); now < 20*window; now += time.Duration(rng.Int64N(int64(window)/5 + 2)) {
			n := 1 + rng.IntN(limit)
			for w.AllowAt(after(now), n) == nil {
				for range n {
					passed = append(passed, now)
				}
				n = 1
			}
			for w.AllowAt(after(now), 1) == nil { // ask for all there is
				passed = append(passed, now)
			}
			first, slower := 0, 0
			for _, at := range passed {
				if now-at >= window {
					first++
				}
				if now-at >= window+quantum {
					slower++
				}
			}
			require.LessOrEqual(t, len(passed)-first, limit, "too many in the window before %v", now)
			if now-begin >= window+quantum {
				require.GreaterOrEqual(t, len(passed)-slower, limit, "too few in the window and sub-window before %v", now)
			}
		}
		require.LessOrEqual(t, len(w.state.ring), 4*(buckets+1))
	})
}

func TestSlidingTellsWhatRemains(t *testing.T) {
	const s = time.Second
	for _, l := range []direct{newLog(t, 3, 10*s), newSliding(t, 3, 10*s, 1000)} {
		require.Equal(t, State{Limit: 3, Remaining: 3}, l.PeekAt(after(0)))
		require.NoError(t, l.AllowAt(after(0), 1))
		require.NoError(t, l.AllowAt(after(4*s), 2))
		st := l.PeekAt(after(4 * s))
		require.Equal(t, int64(0), st.Remaining)
		require.InDelta(t, 6*s, st.NextIn, float64(10*time.Millisecond))
		require.InDelta(t, 10*s, st.FullIn, float64(10*time.Millisecond))
		err := l.AllowAt(after(4*s), 2)
		var rej *spillway.Rejection
		require.ErrorAs(t, err, &rej)
		require.True(t, rej.RetryAfter >= 10*s && rej.RetryAfter <= 10*s*17/16+10*time.Millisecond, "two have to leave: %v", rej.RetryAfter)
		require.True(t, rej.OverQuota)
		require.False(t, l.Idle(after(13*s)))
		require.True(t, l.Idle(after(15*s)))
	}
}

func TestSlidingReserves(t *testing.T) {
	const s = time.Second
	l := newLog(t, 3, 10*s)
	play(t, l, []call{{0, 2, true}, {1 * s, 1, true}})
	r, err := l.ReserveAt(after(2*s), 2, 8*s)
	require.NoError(t, err)
	require.Equal(t, 8*s, r.Delay())
	_, err = l.ReserveAt(after(2*s), 1, 9*s-1)
	require.Error(t, err)
	last, err := l.ReserveAt(after(2*s), 1, 9*s)
	require.NoError(t, err)
	require.Equal(t, 9*s, last.Delay())
	_, err = l.ReserveAt(after(2*s), 1, time.Hour)
	require.Error(t, err, "no more than a window ahead")
	play(t, l, []call{{11 * s, 1, false}})
	r.RefundAt(after(11*s), 2)
	play(t, l, []call{{11 * s, 2, true}, {11 * s, 1, false}})
	last.RefundAt(after(30*s), 1) // too late
	play(t, l, []call{{30 * s, 3, true}, {30 * s, 1, false}})
}

// What is given back leaves no trace, however often, and however many come between.
func TestSlidingGivesBack(t *testing.T) {
	l := newLog(t, 5, time.Minute)
	require.NoError(t, l.AllowAt(after(0), 2))
	for i := range 10_000 {
		at := after(time.Duration(i) * time.Millisecond)
		r := spillway.Request{Arrived: at, Cost: 1 + i%3}
		ticket, err := l.Admit(t.Context(), r)
		require.NoError(t, err)
		l.Done(r, ticket, spillway.Result{Outcome: spillway.Refused})
		require.Equal(t, int64(3), l.PeekAt(at).Remaining)
	}
	require.LessOrEqual(t, len(l.state.ring), 10)
	// In the middle.
	l = newLog(t, 1000, time.Minute)
	for i := range 10_000 {
		at := after(time.Duration(i) * time.Millisecond)
		r := spillway.Request{Arrived: at}
		ticket, err := l.Admit(t.Context(), r)
		require.NoError(t, err)
		if i%1000 < 999 {
			res, err := l.ReserveAt(at.Add(time.Microsecond), 1, 0)
			require.NoError(t, err)
			l.Done(r, ticket, spillway.Result{Outcome: spillway.Refused})
			res.CancelAt(at.Add(time.Microsecond))
		}
	}
	require.LessOrEqual(t, len(l.state.ring), 64)
	require.Equal(t, int64(990), l.PeekAt(after(10*time.Second)).Remaining)
}

func TestSlidingSetLimit(t *testing.T) {
	now := time.Now()
	for _, l := range []Limiter{newLog(t, 10, time.Hour), newSliding(t, 10, time.Hour, 0)} {
		for range 8 {
			now = now.Add(time.Millisecond)
			require.NoError(t, l.AllowAt(now, 1))
		}
		require.NoError(t, setLimit(l, 12))
		require.Equal(t, int64(4), l.PeekAt(now).Remaining)
		require.NoError(t, setLimit(l, 2))
		require.Equal(t, int64(0), l.PeekAt(now).Remaining)
		require.Error(t, l.AllowAt(now, 1))
		require.ErrorContains(t, setLimit(l, 0), "Limit must be in 1..")
		require.NoError(t, setLimit(l, 1000))
		for range 992 {
			now = now.Add(time.Millisecond)
			require.NoError(t, l.AllowAt(now, 1))
		}
		require.Error(t, l.AllowAt(now, 1))
		require.True(t, l.Idle(now.Add(2*time.Hour)))
	}
}

func TestSlidingOptions(t *testing.T) {
	for want, o := range map[string]SlidingWindow{
		"limiter: SlidingWindow: Limit must be in 1..9007199254740992, got 0":            {},
		"limiter: SlidingWindow: Buckets must be in 1..1000, got 1001":                   {Limit: 1, Window: 1e6, Buckets: 1001},
		"limiter: SlidingWindow: Buckets must be in 1..1000, got -1":                     {Limit: 1, Window: 1e6, Buckets: -1},
		"limiter: SlidingWindow: Window must have at least one ns per bucket, got 59ns":  {Limit: 1, Window: 59},
		"limiter: SlidingWindow: Window must be in 1ns..640511h56m34.004840448s, got 0s": {Limit: 1},
	} {
		w, err := New(o)
		require.Nil(t, w)
		require.Error(t, err)
		if o.Limit == 0 || o.Window != 0 {
			require.EqualError(t, err, want)
		}
	}
	for want, o := range map[string]SlidingLog{
		"limiter: SlidingLog: Limit must be in 1..1048576, got 0":       {},
		"limiter: SlidingLog: Limit must be in 1..1048576, got 1048577": {Limit: 1<<20 + 1, Window: time.Hour},
	} {
		l, err := New(o)
		require.Nil(t, l)
		require.EqualError(t, err, want)
	}
}

func FuzzSliding(f *testing.F) {
	f.Add(int64(3), int64(1000), int64(7), []byte{1, 2, 3, 9, 200, 4, 5})
	f.Add(int64(1), int64(math.MaxInt64/4), int64(0), []byte{0, 255, 3, 0, 1})
	f.Fuzz(func(t *testing.T, limit, length, quantum int64, script []byte) {
		if limit < 1 || limit > maxLimit || length < 1 || length > horizon || quantum < 0 || quantum > length {
			return
		}
		c := &sliding{limit: limit, length: length, quantum: quantum, entries: 16}
		var s slidingState
		now := int64(horizon)
		for i, b := range script[:min(len(script), 500)] {
			switch b % 4 {
			case 0:
				now = min(now+1<<min(b/4, 61), 2*horizon)
			case 1:
				now = max(now-1<<(b/8), 0)
			}
			m, n := moment{ns: now}, min(int64(b)+1, limit)
			wait, stamp, ok := c.take(&s, m, n, int64(b%3)*horizon/2)
			require.True(t, ok || wait > 0, "step %d: %d", i, wait)
			if ok && b%5 == 0 {
				before := s.sum
				c.giveBack(&s, m, loan{n: n, stamp: stamp})
				require.Equal(t, before-n, s.sum, "step %d", i)
			}
			sum, empty, last := int64(0), 0, int64(0)
			for j := range s.used {
				e := s.entry(j)
				require.GreaterOrEqual(t, e.at, last, "step %d: sorted", i)
				if sum, last = sum+e.n, e.at; e.n == 0 {
					empty++
				}
			}
			require.Equal(t, []int64{sum, int64(empty)}, []int64{s.sum, int64(s.empty)}, "step %d", i)
			st := c.peek(&s, m)
			require.True(t, st.Remaining >= 0 && st.Remaining <= limit && st.NextIn >= 0 && st.FullIn >= st.NextIn, "step %d: %+v", i, st)
		}
	})
}

// A window is idle once its youngest entry has left it, to the ns.
func TestSlidingIsIdleWhenTheYoungestHasLeft(t *testing.T) {
	l := newLog(t, 3, time.Second)
	for _, at := range []time.Duration{0, 300 * time.Millisecond} {
		_, err := l.ReserveAt(after(at), 1, 0)
		require.NoError(t, err)
	}
	require.False(t, l.Idle(after(1300*time.Millisecond-1)))
	require.True(t, l.Idle(after(1300*time.Millisecond)))
}
