package limiter

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

func newWarmUp(t testing.TB, o WarmUp) *limit[warmState] {
	t.Helper()
	w, err := New(o)
	require.NoError(t, err)
	return w.(*limit[warmState])
}

// A taker acquires as the tests of Guava do: it waits until it may go on.
type taker struct {
	t   *testing.T
	w   *limit[warmState]
	now time.Duration
}

// acquire takes n and returns how long that took.
func (k *taker) acquire(n int) float64 {
	r, err := k.w.ReserveAt(after(k.now), n, never)
	if err != nil {
		k.t.Helper()
		k.t.Fatal(err)
	}
	k.now += r.Delay()
	return math.Round(r.Delay().Seconds()*100) / 100
}

func (k *taker) waits(n int) (out []float64) {
	for range n {
		out = append(out, k.acquire(1))
	}
	return out
}

// The figures are those of Guava's own tests.
func TestWarmUpFollowsGuava(t *testing.T) {
	ms := time.Millisecond
	cold := []float64{0, 1.38, 1.13, 0.88, 0.63, 0.5, 0.5, 0.5}
	t.Run("cold, used, cold again, half cold", func(t *testing.T) {
		k := &taker{t: t, w: newWarmUp(t, WarmUp{Rate: Per(2, time.Second), WarmUp: 4 * time.Second})}
		require.Equal(t, cold, k.waits(8))
		k.now += 500 * ms // pays for the last
		k.now += 4000 * ms
		require.Equal(t, cold, k.waits(8))
		k.now += 500 * ms
		k.now += 2000 * ms
		require.Equal(t, []float64{0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}, k.waits(8))
	})
	t.Run("ten times slower when cold", func(t *testing.T) {
		k := &taker{t: t, w: newWarmUp(t, WarmUp{Rate: Per(5, time.Second), WarmUp: 4 * time.Second, ColdFactor: 10})}
		require.Equal(t, []float64{0, 1.75, 1.26, 0.76, 0.30, 0.20, 0.20, 0.20}, k.waits(8))
		k.now += 200 * ms
		k.now += 4000 * ms
		require.Equal(t, []float64{0, 1.75, 1.26, 0.76, 0.30, 0.20, 0.20, 0.20}, k.waits(8))
		k.now += 200 * ms
		k.now += 1000 * ms // not long enough to be cold: 2 s is the time between two tokens
		require.Equal(t, []float64{0, 0.20, 0.20, 0.20, 0.20, 0.20, 0.20, 0.20}, k.waits(8))
	})
	t.Run("a rate twice as high while cold", func(t *testing.T) {
		k := &taker{t: t, w: newWarmUp(t, WarmUp{Rate: Per(5, time.Second), WarmUp: 10 * time.Second})}
		require.Equal(t, []float64{0, 0.59}, k.waits(2)[:2])
		require.NoError(t, setRate(k.w, after(k.now), Per(10, time.Second)))
		got := k.waits(3)
		require.InDelta(t, 0.57, got[0], 0.011, "old debt at the old rate")
		require.Less(t, got[1], 0.31, "from here on at the new one")
	})
}

// How long it takes to get warm does not depend on how the tokens are split.
func TestWarmUpTimeIsIndependentOfTheSplit(t *testing.T) {
	total := func(split func(i int) int) time.Duration {
		k := &taker{t: t, w: newWarmUp(t, WarmUp{Rate: Per(10, time.Second), WarmUp: 10 * time.Second, MaxCost: 1000})}
		for left, i := 100, 0; left > 0; i++ {
			n := min(split(i), left)
			k.acquire(n)
			left -= n
		}
		k.acquire(1) // pays for the last
		return k.now
	}
	want := total(func(int) int { return 100 })
	require.InDelta(t, 15.0, want.Seconds(), 0.001, "10 s for the cold half of the tokens, 5 s for the other")
	for _, split := range []func(i int) int{
		func(int) int { return 1 },
		func(i int) int { return i + 1 },
		func(i int) int { return 1 + i*7%13 },
	} {
		require.InDelta(t, want, total(split), 200)
	}
}

// Guava never gets warm if it is asked again and again at an unlucky pace.
func TestWarmUpGetsWarmByTrying(t *testing.T) {
	for _, pause := range []time.Duration{20, 90, 120, 145, 170, 245, 290} {
		pause *= time.Millisecond
		w := newWarmUp(t, WarmUp{Rate: Per(10, time.Second), WarmUp: 10 * time.Second})
		passed := 0
		for now := time.Duration(0); now < 100*time.Second; now += pause {
			if w.AllowAt(after(now), 1) == nil && now >= 80*time.Second {
				passed++
			}
		}
		due := 20 * time.Second / max(pause, (100*time.Millisecond+pause-1)/pause*pause)
		require.InDelta(t, float64(due), float64(passed), 1, "asked every %v", pause)
	}
}

func TestWarmUpWithoutWarmUpStillLimits(t *testing.T) {
	for _, warm := range []time.Duration{0, 1, 999 * time.Nanosecond, time.Microsecond, 100 * time.Millisecond} {
		w := newWarmUp(t, WarmUp{Rate: Per(10, time.Second), WarmUp: warm})
		passed := 0
		for now := time.Duration(0); now < 10*time.Second; now += time.Millisecond {
			if w.AllowAt(after(now), 1) == nil {
				passed++
			}
		}
		require.InDelta(t, 100, passed, 2, "warm-up %v", warm)
	}
}

// Exact at rates whose interval is no whole number of ns.
func TestWarmUpRateIsExact(t *testing.T) {
	k := &taker{t: t, w: newWarmUp(t, WarmUp{Rate: Per(3e8, time.Second)})}
	for range 300_000 {
		k.acquire(1)
	}
	require.InDelta(t, time.Millisecond, k.now, float64(5*time.Nanosecond))
}

// However it is asked, and however often it cools, it saves up nothing: n tokens take at least n - 1 stable intervals, and
// one who asks when told to is let in.
func TestWarmUpIsNeverFasterThanItsRate(t *testing.T) {
	seeds(t, 20, func(t *testing.T, rng *rand.Rand) {
		stable := time.Duration(1 + rng.Int64N(int64(time.Second)))
		warm, factor := time.Duration(rng.Int64N(int64(20*stable))), 1+rng.Float64()*5
		w := newWarmUp(t, WarmUp{Rate: Per(1, stable), WarmUp: warm, ColdFactor: factor, MaxCost: 5})
		now, free := time.Duration(0), time.Duration(0)
		for i := range 2000 {
			now += time.Duration(rng.Int64N(int64(3 * stable)))
			if rng.IntN(20) == 0 {
				now += time.Duration(rng.Int64N(int64(warm + stable)))
			}
			if next := w.PeekAt(after(now)).NextIn; rng.IntN(2) == 0 {
				now += next
			} else if (next == 0) != (w.PeekAt(after(now)).Remaining > 0) {
				t.Fatalf("step %d: %v to wait, and it remains %d", i, next, w.PeekAt(after(now)).Remaining)
			}
			n := 1 + rng.IntN(5)
			peek := w.PeekAt(after(now))
			if passed := w.AllowAt(after(now), n) == nil; passed != (peek.NextIn == 0) {
				t.Fatalf("step %d: passed is %v, and %v were to wait", i, passed, peek.NextIn)
			} else if passed {
				if now < free {
					t.Fatalf("step %d: %v too early", i, free-now)
				}
				free = now + time.Duration(n)*stable
			}
		}
	})
}

func TestWarmUpGivesBack(t *testing.T) {
	w := newWarmUp(t, WarmUp{Rate: Per(7, time.Second), WarmUp: 3 * time.Second})
	twin := newWarmUp(t, WarmUp{Rate: Per(7, time.Second), WarmUp: 3 * time.Second})
	now := time.Duration(0)
	for i := range 200 {
		r := spillway.Request{Arrived: after(now), Cost: 1 + i%7}
		ticket, err := w.Admit(t.Context(), r)
		require.NoError(t, err)
		w.Done(r, ticket, spillway.Result{Outcome: spillway.Refused})
		one, err := w.ReserveAt(after(now), 1+i%3, never)
		require.NoError(t, err)
		two, err := twin.ReserveAt(after(now), 1+i%3, never)
		require.NoError(t, err)
		require.Equal(t, two.Delay(), one.Delay(), "step %d", i)
		now += w.PeekAt(after(now)).NextIn + time.Duration(i%5)*time.Second
	}
	w = newWarmUp(t, WarmUp{Rate: Per(1, time.Second)})
	r, err := w.ReserveAt(after(0), 1, 0)
	require.NoError(t, err)
	r.RefundAt(after(0), 1)
	require.NoError(t, w.AllowAt(after(0), 1))
}

func TestWarmUpTellsWhatRemains(t *testing.T) {
	w := newWarmUp(t, WarmUp{Rate: Per(2, time.Second), MaxCost: 10})
	require.True(t, w.Idle(after(0)))
	require.Equal(t, State{Limit: 10, Remaining: 10}, w.PeekAt(after(0)))
	require.NoError(t, w.AllowAt(after(0), 4))
	require.Equal(t, State{Limit: 10, NextIn: 2 * time.Second, FullIn: 2 * time.Second}, w.PeekAt(after(0)))
	err := w.AllowAt(after(time.Second), 1)
	require.Equal(t, &spillway.Rejection{Policy: "warm-up", Reason: "rate exceeded", RetryAfter: time.Second, OverQuota: true}, err)
	require.False(t, w.Idle(after(time.Second)))
	require.True(t, w.Idle(after(2*time.Second)), "without a warm-up it is never cold")
	w = newWarmUp(t, WarmUp{Rate: Per(2, time.Second), WarmUp: 10 * time.Second})
	require.NoError(t, w.AllowAt(after(0), 2))
	require.False(t, w.Idle(after(4*time.Second)), "still warmer than a new one")
	require.True(t, w.Idle(after(time.Minute)))
}

func TestWarmUpOptions(t *testing.T) {
	second := Per(1, time.Second)
	for want, o := range map[string]WarmUp{
		"Rate.Per must be positive, got 0s":          {},
		"Rate.Tokens must be at least 1, got 0":      {Rate: Per(0, time.Second)},
		"WarmUp must be in 0..":                      {Rate: second, WarmUp: -1},
		"ColdFactor must be in 1..1e6, got 0.5":      {Rate: second, ColdFactor: 0.5},
		"ColdFactor must be in 1..1e6, got NaN":      {Rate: second, ColdFactor: math.NaN()},
		"ColdFactor must be in 1..1e6, got +Inf":     {Rate: second, ColdFactor: math.Inf(1)},
		"MaxCost must be at least 1 and take less":   {Rate: second, MaxCost: -1},
		"MaxCost must be at least 1 and take less t": {Rate: second, MaxCost: math.MaxInt},
		"is too long at a rate of":                   {Rate: Per(math.MaxInt, 1), WarmUp: 1000 * time.Hour, MaxCost: 1},
	} {
		w, err := New(o)
		require.Nil(t, w)
		require.ErrorContains(t, err, "limiter: WarmUp: ")
		require.ErrorContains(t, err, want)
	}
	w := newWarmUp(t, WarmUp{Rate: second})
	require.ErrorContains(t, w.Tune(WarmUp{}), "Rate.Per must be positive")
}

func FuzzWarmUp(f *testing.F) {
	f.Add(10, int64(time.Second), int64(10*time.Second), 3.0, []byte{1, 2, 3, 9, 200, 4, 5})
	f.Add(math.MaxInt, int64(1), int64(1), 1.0, []byte{0, 255, 3, 0, 1})
	f.Fuzz(func(t *testing.T, tokens int, per, warm int64, factor float64, script []byte) {
		p, err := WarmUp{Rate: Rate{tokens, time.Duration(per)}, WarmUp: time.Duration(warm), ColdFactor: factor}.plan()
		if err != nil {
			return
		}
		w := p.core.(*warming)
		var s warmState
		now := int64(horizon)
		for i, b := range script[:min(len(script), 500)] {
			switch b % 4 {
			case 0:
				now = min(now+1<<min(b/4, 61), 2*horizon)
			case 1:
				now = max(now-1<<(b/8), 0)
			}
			m, n := moment{ns: now}, min(int64(b)+1, w.maxCost)
			before := s
			wait, stamp, ok := w.take(&s, m, n, int64(b%3)*horizon/2)
			require.Equal(t, uint64(0), stamp>>63)
			require.True(t, ok || wait > 0, "step %d: %d", i, wait)
			require.True(t, s.warmth >= 0 && float64(s.warmth) <= w.stored*part, "step %d: warmth %d", i, s.warmth)
			require.True(t, s.frac >= 0 && s.frac < 1<<32 && s.next >= 0, "step %d: %+v", i, s)
			if ok && b%5 == 0 && wait > 0 {
				w.giveBack(&s, m, loan{n: n, took: now, stamp: stamp})
				require.InDelta(t, before.warmth, s.warmth, float64(n)*part/shareMask+1, "step %d: given back at once", i)
				s.warmth, before.paid, before.last, before.due = before.warmth, s.paid, s.last, s.due
				require.Equal(t, before, s, "step %d: given back at once", i)
			}
		}
	})
}

// Another rate finds it as warm as it was, in proportion.
func TestWarmthIsKeptAsAShare(t *testing.T) {
	warm := func(tokens int, warmUp time.Duration) *warming {
		p, err := WarmUp{Rate: Per(tokens, time.Second), WarmUp: warmUp, ColdFactor: 3}.plan()
		require.NoError(t, err)
		w := p.core.(*warming)
		return w
	}
	slow, fast := warm(2, 4*time.Second), warm(20, 4*time.Second)
	require.Greater(t, fast.stored, slow.stored)
	for _, c := range [][2]*warming{{slow, fast}, {fast, slow}} {
		from, to := c[0], c[1]
		s := warmState{warmth: int64(from.stored * part / 4)}
		to.adopt(&s, moment{}, from)
		require.InDelta(t, to.stored*part/4, float64(s.warmth), 20)
	}
	s := warmState{warmth: 7}
	slow.adopt(&s, moment{}, warm(2, 0))
	require.Zero(t, s.warmth, "one that is always warm does not say how warm it is")
}
