package inflight

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A gauge counts what is inside, and the most that ever was.
type gauge struct{ now, peak atomic.Int64 }

func (g *gauge) add() {
	n := g.now.Add(1)
	for {
		p := g.peak.Load()
		if n <= p || g.peak.CompareAndSwap(p, n) {
			return
		}
	}
}

// However many goroutines enter at once, and whatever credits were left by calm times, the limit holds and no place is lost.
func TestNeverExceedsTheLimit(t *testing.T) {
	for name, c := range map[string]struct{ cells, limit, calm int }{
		"fewer than cells":          {Cells, 3, 0},
		"one cell":                  {1, 3, 0},
		"room for all":              {Cells, 300, 0},
		"after calm":                {Cells, 3, 2000},
		"after calm, one cell":      {1, 5, 2000},
		"after calm, a large limit": {Cells, 100, 500},
	} {
		t.Run(name, func(t *testing.T) {
			count := sized(c.cells)
			calm := make([]int, c.calm)
			var all sync.WaitGroup
			for i := range calm {
				all.Go(func() { calm[i], _ = count.Enter(NoLimit) })
			}
			all.Wait()
			for i, at := range calm {
				if i%2 == 0 {
					count.Leave(at)
				} else {
					count.Answer(at, 0, false)
				}
			}
			var inside gauge
			var admitted atomic.Int64
			for range 16 {
				all.Go(func() {
					for i := range 10_000 {
						at, ok := count.Enter(int64(c.limit))
						if !ok {
							continue
						}
						admitted.Add(1)
						inside.add()
						inside.now.Add(-1)
						switch i % 8 {
						case 0:
							count.Undo(at)
							admitted.Add(-1)
						case 1, 2:
							count.Leave(at)
						default:
							count.Answer(at, time.Duration(i), i%2 == 0)
						}
					}
				})
			}
			all.Wait()
			require.LessOrEqual(t, inside.peak.Load(), int64(c.limit))
			require.Positive(t, admitted.Load())
			size, entered := count.Totals()
			require.Zero(t, size)
			require.Equal(t, admitted.Load()+int64(c.calm), entered)
			require.Equal(t, c.limit, fill(count, int64(c.limit)), "no place is lost")
		})
	}
}

// Two goroutines reach for the last place of one cell at the same moment: one of them gets it.
func TestLastPlaceIsTakenOnce(t *testing.T) {
	count := sized(1)
	var ready atomic.Int64
	var inside gauge
	meet := func(n int64) {
		for ready.Add(1); ready.Load() < n; {
			runtime.Gosched()
		}
	}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for round := range int64(20_000) {
				meet(4*round + 2)
				at, ok := count.Enter(1)
				if ok {
					inside.add()
				}
				meet(4*round + 4) // before anybody leaves
				switch {
				case ok && round%2 == 0:
					inside.now.Add(-1)
					count.Leave(at)
				case ok:
					inside.now.Add(-1)
					count.Answer(at, time.Millisecond, false)
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, inside.peak.Load())
	require.Zero(t, count.Size())
}

// fill enters until it is refused.
func fill(c Counter, limit int64) (n int) {
	for {
		if _, ok := c.Enter(limit); !ok {
			return n
		}
		n++
	}
}

// Goroutines with different limits: the greatest holds while they enter, and each fills up to its own.
func TestEachLimitHolds(t *testing.T) {
	count := sized(Cells)
	limits := []int64{4, 8, 12}
	var inside gauge
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			for range 10_000 {
				if at, ok := count.Enter(limits[i%3]); ok {
					inside.add()
					inside.now.Add(-1)
					count.Leave(at)
				}
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, inside.peak.Load(), int64(12))
	for _, limit := range limits {
		require.Equal(t, 4, fill(count, limit), "the step up to %d", limit)
	}
	_, ok := count.Enter(4)
	require.False(t, ok)
	require.EqualValues(t, 12, count.Size())
}

// For a single goroutine the Counter is a number that is compared with a limit, whatever cells the requests are in.
func TestIsANumberComparedWithALimit(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		count := sized(1 << rng.IntN(CellBits+1))
		var held []int
		var entered, answered, quick int64
		var latency float64
		limits := []int64{0, 1, 2, 5, 30, 200, NoLimit, -1}
		limit := int64(5)
		for range 2000 {
			if rng.IntN(50) == 0 {
				limit = limits[rng.IntN(len(limits))]
			}
			if n := len(held); n > 0 && rng.IntN(2) == 0 {
				i := rng.IntN(n)
				switch rng.IntN(4) {
				case 0:
					count.Undo(held[i])
					entered--
				case 1:
					count.Leave(held[i])
				default:
					took, fast := time.Duration(rng.Int64N(int64(2*longest)>>rng.IntN(36)+1)), rng.IntN(2) == 0
					count.Answer(held[i], took, fast)
					answered++
					latency += took.Seconds()
					if fast {
						quick++
					}
				}
				held = append(held[:i], held[i+1:]...)
			} else if at, ok := enterBy(count, rng.IntN(count.Len()+1), limit); ok {
				require.Less(t, int64(n), limit)
				held = append(held, at)
				entered++
			} else {
				require.GreaterOrEqual(t, int64(n), limit)
			}
			size, in := count.Totals()
			require.Equal(t, int64(len(held)), size)
			require.Equal(t, size, count.Size())
			require.Equal(t, entered, in)
			if rng.IntN(100) == 0 {
				n, fast, sum := count.Answers()
				require.Equal(t, answered, n)
				require.Equal(t, quick, fast)
				require.InDelta(t, latency, sum, float64(n)*unit.Seconds()+1e-6)
				answered, quick, latency = 0, 0, 0
			}
		}
	}
}

// Each answer is counted in one of the calls of Answers, whatever else goes on meanwhile: requests that enter, refusals that
// collect the credits of other cells, and latencies that fill the word of a cell.
func TestEachAnswerIsCountedOnce(t *testing.T) {
	const goroutines, rounds = 8, 5_000 // of the longest latencies, the sum of a tick holds 65 thousand
	for name, c := range map[string]struct {
		limit   int64
		latency time.Duration
	}{
		"calm": {NoLimit, 64 * time.Microsecond}, "narrow": {3, 64 * time.Microsecond}, "slow": {NoLimit, longest - unit}, "late": {6, longest},
	} {
		t.Run(name, func(t *testing.T) {
			count := sized(Cells)
			var want, n, quick atomic.Int64
			var sum float64
			take := func() {
				answers, fast, latency := count.Answers()
				n.Add(answers)
				quick.Add(fast)
				sum += latency
			}
			var all, reader sync.WaitGroup
			stop := make(chan struct{})
			reader.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						take()
						count.Totals()
						runtime.Gosched()
					}
				}
			})
			for range goroutines {
				all.Go(func() {
					for range rounds {
						if at, ok := count.Enter(c.limit); ok {
							count.Answer(at, c.latency, true)
							want.Add(1)
						}
					}
				})
			}
			all.Wait()
			close(stop)
			reader.Wait()
			take()
			require.Equal(t, want.Load(), n.Load())
			require.Equal(t, want.Load(), quick.Load())
			require.InEpsilon(t, float64(want.Load())*c.latency.Seconds(), sum, 1e-9)
			size, entered := count.Totals()
			require.Zero(t, size)
			require.Equal(t, want.Load(), entered)
		})
	}
}

// enterBy enters by the given cell, with credits from anywhere, or as Enter does if there is no such cell.
func enterBy(c Counter, at int, limit int64) (int, bool) {
	if at == c.Len() {
		return c.Enter(limit)
	}
	return at, c.state.search(at, limit)
}

// Idle credits do not pile up in a cell beyond what its word holds.
func TestIdleCreditsAreRetired(t *testing.T) {
	const n = 5 * hoard
	count := sized(1)
	for range n {
		_, ok := count.Enter(NoLimit)
		require.True(t, ok)
	}
	require.EqualValues(t, n, count.Size())
	for i := range n {
		if i%2 == 0 {
			count.Leave(0)
		} else {
			count.Answer(0, time.Second, true)
		}
	}
	require.Zero(t, count.Size())
	_, entered := count.Totals()
	require.EqualValues(t, n, entered)
	require.Less(t, count.state.reserve.Load(), int64(hoard)+full&math.MaxInt64)
	answers, quick, latency := count.Answers()
	require.EqualValues(t, n/2, answers)
	require.EqualValues(t, n/2, quick)
	require.InDelta(t, n/2, latency, n/2*unit.Seconds())
	require.Less(t, count.state.reserve.Load(), int64(hoard))
}

// A negative latency counts as none: it must not take from the sum of the others.
func TestNegativeLatencyCountsAsNone(t *testing.T) {
	count := New()
	for _, latency := range []time.Duration{-time.Hour, 0, time.Second} {
		at, ok := count.Enter(NoLimit)
		require.True(t, ok)
		count.Answer(at, latency, false)
	}
	n, quick, sum := count.Answers()
	require.EqualValues(t, 3, n)
	require.Zero(t, quick)
	require.InDelta(t, 1, sum, 1e-6)
}

func TestZeroCounterAdmitsNothing(t *testing.T) {
	var c Counter
	for _, limit := range []int64{0, 1, NoLimit} {
		_, ok := c.Enter(limit)
		require.False(t, ok)
	}
	require.Zero(t, c.Size())
	require.Zero(t, c.Len())
	n, quick, latency := c.Answers()
	require.Zero(t, n+quick)
	require.Zero(t, latency)
}

func TestAllocatesNothing(t *testing.T) {
	c := New()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		at, _ := c.Enter(1)
		_, _ = c.Enter(1) // refused
		c.Leave(at)
		at, _ = c.Enter(1)
		c.Answer(at, time.Millisecond, false)
		c.Answers()
	}))
}
