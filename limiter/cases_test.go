package limiter

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

// The figures that the test suites of other limiters ask for, as far as no test of a limit has them.

// As x/time/rate: what is asked at once, and over a time.
func TestCasesOfXTime(t *testing.T) {
	odd := newBucket(t, Per(10, 13*time.Second), 1) // 0.769… per second
	play(t, odd, []call{{0, 1, true}, {1300*time.Millisecond - 1, 1, false}, {1300 * time.Millisecond, 1, true}})

	b := newBucket(t, Per(10, time.Second), 5)
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 15 {
		all.Go(func() {
			if b.AllowAt(start, 1) == nil {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	require.Equal(t, int64(5), passed.Load())

	b = newBucket(t, Per(100, time.Second), 100)
	n := 0
	for at := time.Duration(0); at < 5*time.Second; at += 2 * time.Millisecond {
		if b.AllowAt(after(at), 1) == nil {
			n++
		}
	}
	require.Equal(t, 100+499, n, "the burst, and what comes until the last is asked for")

	b = newBucket(t, Per(10, time.Second), 1)
	play(t, b, []call{{0, 1, true}, {d, 1, true}})
	require.Equal(t, State{Limit: 1, NextIn: 3 * d / 2, FullIn: 3 * d / 2}, b.PeekAt(after(d/2)), "a stale clock")
	play(t, b, []call{{3 * d / 2, 1, false}, {2 * d, 1, true}})
}

// As juju/ratelimit: debt, and as many as there are.
func TestCasesOfJuju(t *testing.T) {
	b := newBucket(t, Per(4, time.Second), 10)
	for i, c := range []struct {
		n    int
		wait float64
	}{{10, 0}, {2, 0.5}, {2, 1}, {1, 1.25}} {
		r, err := b.ReserveAt(after(0), c.n, never)
		require.NoError(t, err)
		require.InDelta(t, c.wait, r.Delay().Seconds(), 0, "%d", i)
	}
	before := b.PeekAt(after(0))
	_, err := b.ReserveAt(after(0), 1, 1500*time.Millisecond-1)
	require.Error(t, err, "one ns short")
	require.Equal(t, before, b.PeekAt(after(0)), "nothing taken")

	b = newBucket(t, Per(4, time.Second), 10)
	for _, c := range []struct{ want, got int64 }{{5, 5}, {2, 2}, {5, 3}, {1, 0}} {
		n := min(c.want, b.PeekAt(after(0)).Remaining)
		require.Equal(t, c.got, n)
		require.NoError(t, b.AllowAt(after(0), int(n)))
	}
}

// As Guava's tryAcquire.
func TestCasesOfGuava(t *testing.T) {
	ms := time.Millisecond
	try := func(s *shaper, at, timeout time.Duration) bool {
		_, err := s.ReserveAt(after(at), 1, timeout)
		return err == nil
	}
	s := newShaper(t, Shaper{Rate: Per(5, time.Second)})
	require.True(t, try(s, 0, 0))
	require.False(t, try(s, 0, 0))
	require.False(t, try(s, 0, -time.Second), "which is no timeout")
	require.False(t, try(s, 100*ms, 0))
	require.True(t, try(s, 100*ms, 200*ms))
	require.False(t, try(s, 200*ms, 100*ms), "one waits already")
	require.True(t, try(s, 200*ms, 200*ms))
}

// As uber/ratelimit: many takers share one pace, and slack is saved up and then used up.
func TestCasesOfUber(t *testing.T) {
	shaper := func(n, slack int) Limiter {
		return newShaper(t, Shaper{Rate: Per(n, time.Second), Slack: slack})
	}
	t.Run("four takers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			passed := take(t, func() []Limiter { return []Limiter{shaper(100, 0)} }, 4)
			for _, second := range []int64{1, 2, 3} {
				time.Sleep(time.Until(begin.Add(time.Duration(second)*time.Second - 1))) // before the next passes
				require.Equal(t, 100*second, passed.Load())
			}
		})
	})
	for slack, want := range map[int]int64{0: 120, 10: 130, 20: 140, 150: 270} {
		synctest.Test(t, func(t *testing.T) {
			fast, slow := shaper(100, slack), shaper(10, 0)
			passed := take(t, func() []Limiter { return []Limiter{slow, fast} }, 1)
			time.Sleep(2 * time.Second)
			more := take(t, func() []Limiter { return []Limiter{fast} }, 1)
			time.Sleep(time.Second)
			require.InDelta(t, want, passed.Load()+more.Load(), 2, "slack %d", slack)
		})
	}
	for _, c := range []struct {
		slack    int
		at, pass time.Duration
	}{{0, 3, 3}, {1, 3, 4}, {1, 10, 11}} {
		synctest.Test(t, func(t *testing.T) {
			passed := take(t, func() []Limiter { return []Limiter{shaper(1, c.slack)} }, 3)
			time.Sleep(c.at*time.Second - time.Millisecond)
			require.Equal(t, int64(c.pass), passed.Load(), "slack %d after %d s", c.slack, c.at)
		})
	}
}

// take has so many takers go through all shapers again and again until the test ends, and counts how often they got through.
func take(t *testing.T, build func() []Limiter, takers int) *atomic.Int64 {
	t.Helper()
	passed, shapers := new(atomic.Int64), build()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	for range takers {
		go func() {
			for {
				for _, s := range shapers {
					if s.Wait(ctx, 1) != nil {
						return
					}
				}
				passed.Add(1)
			}
		}()
	}
	synctest.Wait()
	return passed
}

// As resilience4j: permits of a cycle that is to come are taken in advance, and a limit that is changed counts from then on.
func TestCasesOfResilience4j(t *testing.T) {
	const s = time.Second
	w := newWindow(t, FixedWindow{Limit: 1, Period: s})
	play(t, w, []call{{0, 1, true}, {0, 1, false}})
	_, err := w.ReserveAt(after(0), 1, s)
	require.NoError(t, err)
	require.Equal(t, State{Limit: 1, NextIn: s, FullIn: 2 * s}, w.PeekAt(after(0)), "the next one is taken too")
	play(t, w, []call{{s, 1, false}, {2 * s, 1, true}})
	require.NoError(t, setLimit(w, 3))
	play(t, w, []call{{2 * s, 2, true}, {2 * s, 1, false}, {3 * s, 3, true}, {9 * s, 3, true}, {9 * s, 1, false}})
}

// As the semaphores: so many run, so many wait in order, the next is refused at once, and giving back twice is a misuse that
// does not raise the limit.
func TestCasesOfSemaphores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const k, waiting = 3, 4
		q := newQueue(t, Queue{Limit: k, MaxQueue: waiting})
		l := newLine(t, q)
		names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		for _, who := range names {
			l.join(t.Context(), who, 1, spillway.Normal)
		}
		require.Equal(t, "queue full", l.reason("h"))
		for range k + waiting {
			q.Release(1)
			synctest.Wait()
			require.LessOrEqual(t, q.Stats().InFlight, int64(k))
		}
		l.all.Wait()
		require.Equal(t, names[:k+waiting], l.in)
		require.Panics(t, func() { q.Release(1) })
		require.Equal(t, Stats{Name: "queue", Admitted: 7, Refused: 1, Waited: 4, ByReason: []spillway.Refusal{{Policy: "queue", Reason: "queue full", Count: 1}}}, countsOf(q))
		require.Equal(t, State{Limit: k, Remaining: k}, q.PeekAt(readClock()))
	})
}

// What can be asked about a later or an earlier time, however far off, changes nothing.
func TestLookingChangesNothing(t *testing.T) {
	twins := directs(t)
	for name, l := range directs(t) {
		t.Run(name, func(t *testing.T) {
			twin := twins[name]
			if w, ok := l.(*limit[slidingState]); ok {
				align(twin, w.clock)
			}
			for i := range 40 {
				at := time.Duration(i) * 77 * time.Millisecond
				for _, far := range []time.Duration{time.Second, time.Hour, math.MaxInt64 / 2, -time.Hour, math.MinInt64 / 2} {
					l.PeekAt(after(at + far))
					l.Idle(after(at + far))
					l.(quoter).Quota(after(at+far), spillway.Request{})
				}
				require.Equal(t, twin.PeekAt(after(at)), l.PeekAt(after(at)))
				require.Equal(t, twin.AllowAt(after(at), 1+i%3) == nil, l.AllowAt(after(at), 1+i%3) == nil, "%v", at)
			}
		})
	}
}
