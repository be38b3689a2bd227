package shedder

import (
	"math"
	"time"

	"github.com/spillway-go/spillway/stats"
)

// rates finds the greatest rate of successes in a window.
type rates struct {
	counts []int64 // of the closed buckets, oldest first; reused
	means  []float64
}

// greatest returns the greatest number of successes per second: pass, over single buckets, and steady, over half a second
// at least.
//
// A rate is taken over at least as long as its requests took. A backlog that was worked on side by side ends in one
// bucket, and a single bucket would call that a rate of which the service is capable.
func (f *rates) greatest(w *stats.Window, now time.Time, each func(stats.Bucket)) (pass, steady float64) {
	f.counts, f.means = f.counts[:0], f.means[:0]
	for b := range w.Complete(now) {
		each(b)
		f.counts = append(f.counts, b.Count)
		f.means = append(f.means, b.Mean())
	}
	span := w.BucketSpan()
	half := int((500*time.Millisecond + span - 1) / span)
	for i := range f.counts {
		k := max(1, int(math.Ceil(f.means[i]/float64(span))))
		pass = max(pass, f.rate(i, k, span))
		steady = max(steady, f.rate(i, max(k, half), span))
	}
	return pass, steady
}

// rate returns the successes per second over the k buckets that end with bucket i. Buckets before the first count as
// empty.
func (f *rates) rate(i, k int, span time.Duration) float64 {
	var sum int64
	for j := i; j >= 0 && j > i-k; j-- {
		sum += f.counts[j]
	}
	return float64(sum) / (float64(k) * span.Seconds())
}
