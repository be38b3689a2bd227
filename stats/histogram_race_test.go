package stats

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHistogramConcurrentRecordsAfterIdle(t *testing.T) {
	h := newHistogram(t, &HistogramOptions{Span: 8 * time.Second})
	now := epoch
	for range 100 {
		together(16, func(i int) { h.Record(now, time.Duration(i%4)) })
		require.Equal(t, int64(16), h.Count(now))
		require.Equal(t, []time.Duration{0, 1, 2, 3}, h.Quantiles(now, 0.25, 0.5, 0.75, 1))
		now = now.Add(10 * spanOf(h))
	}
}

// Writers race through time, each at its own pace within the window, so that cells change their lap beside them all the
// time.
func TestHistogramLosesNothingWhileRolling(t *testing.T) {
	const writers, steps, n, lag = 8, 1000, 16, 8
	h := newHistogram(t, &HistogramOptions{Span: n * 10, Buckets: n, Highest: 63})
	h.Count(epoch)
	var step [writers]atomic.Int64
	together(writers, func(i int) {
		for s := range int64(steps) {
			for s-slowest(&step) > lag { // or its cell could be taken by the next lap before it is counted
				runtime.Gosched()
			}
			h.Record(epoch.Add(time.Duration(s*10+int64(i))), time.Duration(s%4))
			step[i].Store(s + 1)
		}
	})
	now := epoch.Add((steps - 1) * 10)
	require.Equal(t, int64(writers*n), h.Count(now))
	require.Equal(t, []time.Duration{0, 1, 2, 3}, h.Quantiles(now, 0.25, 0.5, 0.75, 1))
}

func TestHistogramReadersBesideWriters(t *testing.T) {
	h := newHistogram(t, &HistogramOptions{Span: 800, Highest: 63})
	var clock, wrong atomic.Int64
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for !stop.Load() {
				now := epoch.Add(time.Duration(clock.Load()))
				if d := h.Quantile(now, 0.5); d != 0 && (d < 20 || d > 30) {
					wrong.Add(1)
				}
			}
		})
	}
	together(4, func(i int) {
		for range 3000 {
			h.Record(epoch.Add(time.Duration(clock.Add(1))), time.Duration(20+i))
		}
	})
	stop.Store(true)
	readers.Wait()
	require.Zero(t, wrong.Load())
}
