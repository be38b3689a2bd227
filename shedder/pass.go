package shedder

import (
	"math"
	"time"

	"github.com/spillway-go/spillway/stats"
)

// windows are the successes of the last seconds, in one window for each cell of a [crowd]. Their buckets begin together.
type windows struct {
	of     []*stats.Window
	merged []stats.Bucket // guarded by the Shedder's mu; reused
}

func newWindows(n int, span time.Duration, buckets int) (*windows, error) {
	w := &windows{of: make([]*stats.Window, n), merged: make([]stats.Bucket, 0, buckets)}
	for i := range w.of {
		var err error
		if w.of[i], err = stats.NewWindow(span, buckets); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// anchor makes the buckets of all windows begin at base.
func (w *windows) anchor(base time.Time) {
	for _, one := range w.of {
		one.Total(base)
	}
}

// span returns the length of one bucket.
func (w *windows) span() time.Duration { return w.of[0].BucketSpan() }

// complete returns the closed buckets at now, oldest first.
func (w *windows) complete(now time.Time) []stats.Bucket {
	w.merged = w.merged[:0]
	for b := range w.of[0].Complete(now) {
		w.merged = append(w.merged, b)
	}
	for _, other := range w.of[1:] {
		i := 0
		for b := range other.Complete(now) {
			w.merged[i].Count += b.Count
			w.merged[i].Sum += b.Sum
			i++
		}
	}
	return w.merged
}

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
func (f *rates) greatest(w *windows, now time.Time, each func(stats.Bucket)) (pass, steady float64) {
	f.counts, f.means = f.counts[:0], f.means[:0]
	for _, b := range w.complete(now) {
		each(b)
		f.counts = append(f.counts, b.Count)
		f.means = append(f.means, b.Mean())
	}
	span := w.span()
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
