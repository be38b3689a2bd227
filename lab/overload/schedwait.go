package overload

import (
	"math"
	"runtime/metrics"
)

// schedWaits reads how long goroutines waited in the run queue since it was last asked.
type schedWaits struct {
	sample []metrics.Sample
	last   []uint64
}

func newSchedWaits() *schedWaits {
	w := &schedWaits{sample: []metrics.Sample{{Name: "/sched/latencies:seconds"}}}
	w.p99()
	return w
}

// p99 returns the upper edge of the bucket that holds the 99th percentile, in seconds, or 0 if there is nothing new.
func (w *schedWaits) p99() float64 {
	metrics.Read(w.sample)
	if w.sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0
	}
	h := w.sample[0].Value.Float64Histogram()
	if w.last == nil {
		w.last = make([]uint64, len(h.Counts))
	}
	var total uint64
	for i, n := range h.Counts {
		total += n - w.last[i]
	}
	rest := total / 100
	edge := 0.0
	for i := len(h.Counts) - 1; i >= 0 && total > 0; i-- {
		n := h.Counts[i] - w.last[i]
		if n > rest {
			if edge = h.Buckets[i+1]; math.IsInf(edge, 1) {
				edge = h.Buckets[i]
			}
			break
		}
		rest -= n
	}
	copy(w.last, h.Counts)
	return edge
}
