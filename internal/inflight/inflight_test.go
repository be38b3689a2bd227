package inflight

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// However many goroutines enter at once, the limit holds and no place is lost.
func TestNeverExceedsTheLimit(t *testing.T) {
	for _, held := range []int64{0, plenty} {
		const free = 3
		c := Counter{make([]cell, Cells)} // as on a machine with many processors
		for range held {
			_, ok := c.Enter(held + free)
			require.True(t, ok)
		}
		var inside, peak, entered atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 20_000 {
					at, ok := c.Enter(held + free)
					if !ok {
						continue
					}
					entered.Add(1)
					if n := inside.Add(1); n > peak.Load() {
						peak.Store(n)
					}
					inside.Add(-1)
					c.Leave(at)
				}
			})
		}
		all.Wait()
		require.LessOrEqual(t, peak.Load(), int64(free))
		require.Positive(t, entered.Load())
		require.Equal(t, held, c.Size())
	}
}

func TestFillsUpToTheLimit(t *testing.T) {
	c := New()
	var held []int
	for range 5 {
		at, ok := c.Enter(5)
		require.True(t, ok)
		held = append(held, at)
	}
	_, ok := c.Enter(5)
	require.False(t, ok)
	at, ok := c.Enter(NoLimit)
	require.True(t, ok)
	require.EqualValues(t, 6, c.Size())
	c.Undo(at)
	for _, at := range held {
		c.Leave(at)
	}
	require.Zero(t, c.Size())
}

func TestZeroCounterAdmitsNothing(t *testing.T) {
	var c Counter
	for _, limit := range []int64{0, 1, NoLimit} {
		_, ok := c.Enter(limit)
		require.False(t, ok)
	}
	require.Zero(t, c.Size())
}
