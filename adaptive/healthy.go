package adaptive

import (
	"math"
	"time"
)

const (
	// minute is the least time over which a mean latency counts. The first windows are shorter, so that there is a
	// bound soon; they start at firstWindow and double.
	minute      = time.Minute
	firstWindow = time.Second
	// windowSamples is the least number of successes in a window: the mean of 100 exponential latencies is good to 10 %.
	windowSamples = 100
	// remembered is the number of windows that the bound is computed from: an hour with traffic, and the first short
	// ones.
	remembered = 64
)

// healthy bounds the latency that an Estimator may consider normal. It remembers the mean latency of each of the last
// 64 minutes that had traffic. The ceiling is the least of these means times rise. A mean above the ceiling counts as the
// ceiling, so the ceiling grows by no more than rise in an hour.
type healthy struct {
	means [remembered]float64 // seconds; a ring
	n     int                 // windows that have ended
	least float64             // of means; 0 if there is none

	length time.Duration // of this window
	from   time.Time
	sum    float64 // seconds
	count  int
}

// add takes the latency of a success that ended at the given time.
func (h *healthy) add(end time.Time, latency time.Duration, rise float64) {
	if h.count == 0 && h.n == 0 {
		h.from, h.length = end, firstWindow
	}
	if end.Before(h.from) { // the clock stepped back
		h.from = end
	}
	h.sum += latency.Seconds()
	h.count++
	if h.count < windowSamples || end.Sub(h.from) < h.length {
		return
	}
	mean := h.sum / float64(h.count)
	if h.least > 0 && rise != Off {
		mean = min(mean, h.least*rise)
	}
	h.means[h.n%remembered] = mean
	h.n++
	h.least = math.Inf(1)
	for _, m := range h.means[:min(h.n, remembered)] {
		h.least = min(h.least, m)
	}
	h.from, h.length, h.sum, h.count = end, min(2*h.length, minute), 0, 0
}

// ceiling returns the longest latency that may count as healthy, or 0 if there is no bound yet.
func (h *healthy) ceiling(o *Options) time.Duration {
	c := math.Inf(1)
	if h.least > 0 && o.MaxRise != Off {
		c = max(h.least*o.MaxRise*float64(time.Second), 1)
	}
	if o.MaxBaseline > 0 {
		c = min(c, float64(o.MaxBaseline))
	}
	if c >= math.MaxInt64 {
		return 0
	}
	return time.Duration(c)
}
