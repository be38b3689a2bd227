package stats

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/internal/stripe"
)

func TestCounterAdds(t *testing.T) {
	var c Counter
	require.Zero(t, c.Value())
	c.Add(5)
	c.Add(-7)
	c.Add(0)
	require.Equal(t, int64(-2), c.Value())
}

func TestCounterCellsAreApart(t *testing.T) {
	require.Equal(t, uintptr(stripe.Size), unsafe.Sizeof(counterCell{}))
	var c Counter
	c.Add(1)
	require.Len(t, *c.cells.Load(), stripe.Count())
}

func TestCounterConcurrentFirstAdds(t *testing.T) {
	var cs [5000]Counter
	lockstep(len(cs), func(_, round int) { cs[round].Add(1) })
	for i := range cs {
		require.Equal(t, int64(2), cs[i].Value())
	}
}

func TestCounterConcurrentAdds(t *testing.T) {
	var c Counter
	together(16, func(i int) {
		for range 10_000 {
			c.Add(int64(i))
		}
	})
	require.Equal(t, int64(10_000*120), c.Value())
}

func TestCounterDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates; run without -race to check allocations")
	}
	var c Counter
	c.Add(1)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c.Add(1)
		c.Value()
	}))
}
