package stats

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// together runs f in n goroutines that start at the same moment, and waits for them.
func together(n int, f func(i int)) {
	var ready, done sync.WaitGroup
	ready.Add(n)
	gate := make(chan struct{})
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-gate
			f(i)
		})
	}
	ready.Wait()
	close(gate)
	done.Wait()
}

// lockstep runs f in two goroutines for each round, both at the same nanoseconds as far as the machine has two
// processors: they meet by spinning, because a goroutine that must be woken comes too late for a race of a few
// instructions.
func lockstep(rounds int, f func(worker, round int)) {
	var arrived atomic.Int64
	together(2, func(worker int) {
		for round := range rounds {
			arrived.Add(1)
			for spins := 0; arrived.Load() < int64(2*(round+1)); spins++ {
				if spins%1000 == 999 {
					runtime.Gosched()
				}
			}
			f(worker, round)
		}
	})
}

func TestWindowConcurrentFailuresAfterIdle(t *testing.T) {
	for range 200 {
		w := newWindow(t, time.Second, 10)
		w.Add(epoch, 1)
		now := epoch.Add(10 * time.Second)
		together(100, func(int) { w.Add(now, 1) })
		require.Equal(t, int64(100), w.Total(now).Count)
		require.Equal(t, int64(100), w.Total(now).Sum)
	}
}

func TestWindowConcurrentFirstUse(t *testing.T) {
	const rounds = 5000
	var ws [rounds]*Window
	for i := range ws {
		ws[i] = newWindow(t, time.Second, 8)
	}
	apart := func(worker int) time.Time { return epoch.Add(time.Duration(worker) * 1500 * time.Millisecond) }
	lockstep(rounds, func(worker, round int) { ws[round].Add(apart(worker), 1) })
	for _, w := range ws {
		require.Equal(t, int64(2), w.Total(apart(1)).Count)
		for b := range w.Buckets(apart(1)) {
			require.Less(t, b.Count, int64(2), "both count from one base, so samples 1.5 s apart never share a bucket of 1 s")
		}
	}
}

func TestWindowConcurrentFirstWriters(t *testing.T) {
	const rounds = 20_000
	w := newWindow(t, 10, 4)
	w.Add(epoch, 0)
	var lost [2]int64
	lockstep(rounds, func(worker, round int) {
		now := epoch.Add(time.Duration(round+1) * 10)
		w.Add(now, 1)
		// The other may still be in this round, or one ahead: look at the round before, which is over.
		if round > 0 && w.find(int64(round)).count.Load() != 2 {
			lost[worker]++
		}
	})
	require.Zero(t, lost)
}

// Writers race through time, each at its own pace within the window, so that rollovers happen beside them all the time.
// Nothing may be lost, and nothing counted twice or in a wrong bucket.
func TestWindowLosesNothingWhileRolling(t *testing.T) {
	const writers, steps, n, lag = 8, 2000, 64, 16
	w := newWindow(t, 10, n)
	w.Add(epoch, 0)
	var step [writers]atomic.Int64
	var wrong atomic.Int64
	var want [steps]atomic.Int64
	together(writers, func(i int) {
		for s := range int64(steps) {
			for s-slowest(&step) > lag { // or a sample could leave the ring before it is checked
				runtime.Gosched()
			}
			w.Add(epoch.Add(time.Duration(s*10+int64(i))), s)
			want[s].Add(1)
			step[i].Store(s + 1)
			if old := s - 2*lag; old >= 0 && i == 0 {
				b := w.find(old)
				if got := *snapshot(b); got.Sum != got.Count*old || got.Count != expected(old, writers) || got.Min != old || got.Max != old {
					wrong.Add(1)
				}
			}
		}
	})
	require.Zero(t, wrong.Load())
	now := epoch.Add((steps - 1) * 10)
	s := int64(steps - n)
	for b := range w.Buckets(now) {
		require.Equal(t, int64(writers), b.Count, "slot %d", s)
		require.Equal(t, writers*s, b.Sum, "slot %d", s)
		require.Equal(t, want[s].Load(), b.Count)
		s++
	}
}

func slowest(step *[8]atomic.Int64) int64 {
	least := step[0].Load()
	for i := range step {
		least = min(least, step[i].Load())
	}
	return least
}

// expected is how many samples a slot holds when all writers have passed it; slot 0 has the one that set the base.
func expected(slot, writers int64) int64 {
	if slot == 0 {
		return writers + 1
	}
	return writers
}

func snapshot(b *bucket) *Bucket {
	var s Bucket
	if b != nil {
		s.merge(b)
	}
	return &s
}

// A writer that was stopped between finding its bucket and adding to it must not touch a newer one.
func TestWindowStoppedWriter(t *testing.T) {
	w := newWindow(t, time.Second, 2)
	w.Add(epoch, 1)
	held := w.newest.Load()
	now := epoch.Add(2 * time.Second) // the same place of the ring
	w.Add(now, 10)
	held.add(1000)
	require.Equal(t, Bucket{Start: epoch.Add(time.Second), Count: 1, Sum: 10, Min: 10, Max: 10}, w.Total(now))
}

// Readers must never see a sample counted whose value is missing.
func TestWindowReadersSeeWholeSamples(t *testing.T) {
	const v = 7
	w := newWindow(t, time.Second, 1)
	var stop atomic.Bool
	var readers sync.WaitGroup
	broken := 0
	readers.Go(func() {
		for !stop.Load() {
			if b := w.Total(epoch); b.Count > 0 && (b.Sum < b.Count*v || b.Min != v || b.Max != v) {
				broken++
			}
		}
	})
	together(3, func(int) { // writers that contend, so that they are interrupted between the words of a bucket
		for range 50_000 {
			w.Add(epoch, v)
		}
	})
	stop.Store(true)
	readers.Wait()
	require.Zero(t, broken)
}

// The same while buckets begin and end.
func TestWindowReadersWhileRolling(t *testing.T) {
	const v = 7
	w := newWindow(t, 100, 8)
	var clock, broken atomic.Int64
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for !stop.Load() {
				for b := range w.Buckets(epoch.Add(time.Duration(clock.Load()))) {
					if b.Count > 0 && (b.Sum < b.Count*v || b.Min != v || b.Max != v) {
						broken.Add(1)
					}
				}
			}
		})
	}
	together(4, func(int) {
		for range 5000 {
			w.Add(epoch.Add(time.Duration(clock.Add(1))), v)
		}
	})
	stop.Store(true)
	readers.Wait()
	require.Zero(t, broken.Load())
}
