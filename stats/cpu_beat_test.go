package stats_test

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/stats"
)

func TestCPUBeatReadsEveryInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeCPU(1)
		c := newCPU(t, &stats.CPUOptions{Source: src})
		c.Start()
		c.Start()
		synctest.Wait()
		for i := range 20 {
			require.Equal(t, i+1, src.count())
			src.mu.Lock()
			src.use(beat / 2)
			src.mu.Unlock()
			time.Sleep(beat)
			synctest.Wait()
		}
		s := c.Sample(time.Now())
		require.InDelta(t, 0.5, s.Usage, 1e-9)
		require.Equal(t, beat, s.Span)
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())

		reads := src.count()
		time.Sleep(time.Minute)
		require.Equal(t, reads, src.count(), "closed")
		c.Sample(time.Now())
		require.Equal(t, reads+1, src.count(), "but still pulled")
		c.Start()
		time.Sleep(beat + beat/2)
		require.Equal(t, reads+2, src.count(), "and started again; its first tick found a fresh reading")
		require.NoError(t, c.Close())
	})
}

// TestCPUBeatAndPullsShareTheWork pulls a CPU that has a beat, off the beat. Whoever comes first reads; nobody reads twice.
func TestCPUBeatAndPullsShareTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFakeCPU(1)
		c := newCPU(t, &stats.CPUOptions{Source: src})
		c.Start()
		for range 10_000 {
			time.Sleep(time.Millisecond)
			c.Sample(time.Now())
		}
		synctest.Wait()
		require.InDelta(t, 41, src.count(), 1, "10 s")
		require.NoError(t, c.Close())
	})
}

func TestManyBeatsLeaveNothingBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 1000 {
		c := newCPU(t, &stats.CPUOptions{Source: newFakeCPU(1)})
		s, err := stats.NewSchedLatency(nil)
		require.NoError(t, err)
		c.Start()
		s.Start()
		require.NoError(t, c.Close())
		require.NoError(t, s.Close())
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before+2, "other tests may have their own")
}

// TestOneCallerReads lets many goroutines ask at the same instants, and counts who reads.
func TestOneCallerReads(t *testing.T) {
	src := newFakeCPU(1)
	c := newCPU(t, &stats.CPUOptions{Source: src})
	reads := 0
	s, err := stats.NewSchedLatency(&stats.SchedLatencyOptions{Interval: beat, Read: func() (*metrics.Float64Histogram, error) {
		reads++ // the race detector tells if two read at once
		return &metrics.Float64Histogram{Counts: []uint64{uint64(reads)}, Buckets: []float64{0, 1}}, nil
	}})
	require.NoError(t, err)
	const instants = 500
	for i := range instants {
		now := epoch.Add(time.Duration(i) * beat)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				c.Sample(now)
				s.Sample(now)
			})
		}
		wg.Wait()
	}
	require.Equal(t, instants, src.count())
	require.Equal(t, instants, reads)
}
