package overload

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// slice is how long yielding work runs between two yields.
const slice = 100 * time.Microsecond

// A Burner burns CPU by counted iterations, so that the cost of a request does not depend on how much of a core the
// process gets. It is safe for concurrent use.
type Burner struct {
	perMilli float64 // iterations in a millisecond of CPU
	sink     atomic.Uint64
}

// Burn uses d of CPU in one piece, like a tight loop over data.
func (b *Burner) Burn(d time.Duration) {
	b.sink.Store(spin(b.iterations(d)))
}

// BurnYielding uses d of CPU in slices of 0.1 ms and lets other goroutines run between them, like work that uses locks,
// channels and system calls.
func (b *Burner) BurnYielding(d time.Duration) {
	for ; d > slice; d -= slice {
		b.Burn(slice)
		runtime.Gosched()
	}
	b.Burn(d)
}

func (b *Burner) iterations(d time.Duration) int {
	return int(b.perMilli * float64(d) / float64(time.Millisecond))
}

//go:noinline
func spin(n int) uint64 {
	x := uint64(n) | 1
	for range n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// calibrate returns how many iterations of spin use a millisecond of CPU. It measures the CPU time of its thread, not
// the wall clock, so that a quota or a neighbour cannot distort it, and takes the median of many trials.
func calibrate() float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const (
		iterations = 400_000
		trials     = 81
	)
	used := make([]time.Duration, trials)
	for i := range used {
		before := threadCPU()
		x := spin(iterations)
		used[i] = max(threadCPU()-before, 1)
		runtime.KeepAlive(x)
	}
	slices.Sort(used)
	return iterations / (float64(used[trials/2]) / float64(time.Millisecond))
}
