package stripe

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCountIsAPowerOfTwoWithinItsBounds(t *testing.T) {
	for procs, want := range map[int]int{0: 1, 1: 1, 2: 4, 3: 8, 4: 8, 5: 16, 8: 16, 9: 32, 16: 32, 17: 32, 128: 32} {
		require.Equal(t, want, countFor(procs), "GOMAXPROCS=%d", procs)
	}
	n := Count()
	require.Positive(t, n)
	require.Zero(t, n&(n-1))
	require.Zero(t, Wide()&(Wide()-1))
	require.GreaterOrEqual(t, Wide(), n)
	require.LessOrEqual(t, Wide(), 2*maxCount)
}

func TestIndexStaysInRange(t *testing.T) {
	for n := 1; n <= 1024; n *= 2 {
		i := Index(n)
		require.GreaterOrEqual(t, i, 0)
		require.Less(t, i, n)
	}
	require.Zero(t, Index(1))
}

// A stack moves when it grows or shrinks, and the stripe with it, so that it may change now and then; but it must not wander from
// call to call.
func TestIndexSeldomChangesWithinAGoroutine(t *testing.T) {
	changes, last := 0, Index(32)
	for range 10_000 {
		if i := Index(32); i != last {
			changes, last = changes+1, i
		}
	}
	require.LessOrEqual(t, changes, 3)
}

func TestIndexSpreadsGoroutines(t *testing.T) {
	const goroutines, stripes = 512, 16
	var got [stripes]atomic.Int64
	var ready, done sync.WaitGroup
	ready.Add(goroutines)
	gate := make(chan struct{})
	for range goroutines {
		done.Go(func() {
			got[Index(stripes)].Add(1)
			ready.Done()
			<-gate // all stacks live at once, so that no two share an address
		})
	}
	ready.Wait()
	close(gate)
	done.Wait()
	for i := range got {
		require.Positive(t, got[i].Load(), "stripe %d was never used", i)
		require.Less(t, got[i].Load(), int64(goroutines/4), "stripe %d takes too much", i)
	}
}

var sink int

func BenchmarkIndex(b *testing.B) {
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			sink = Index(8)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			n := 0
			for pb.Next() {
				n += Index(8)
			}
			_ = n
		})
	})
}
