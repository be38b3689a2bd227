package stats

import (
	"iter"
	"time"
)

// A Bucket says what a Window recorded from Start on, for one bucket's span or, from Total, for the whole window.
// Without samples all but Start is 0.
type Bucket struct {
	Start time.Time
	Count int64 // samples
	Sum   int64 // of their values
	Min   int64 // the least value
	Max   int64 // the greatest value
}

// Mean returns Sum / Count, or 0 without samples.
func (b Bucket) Mean() float64 {
	if b.Count == 0 {
		return 0
	}
	return float64(b.Sum) / float64(b.Count)
}

// Buckets returns the buckets of the window that ends with the bucket of now, oldest first. There are always as many as
// NewWindow was given, empty ones included; the last is the one being filled.
//
// Values are read one by one while others may write: a sample that is being added may show in Sum, Min and Max before
// it shows in Count.
func (w *Window) Buckets(now time.Time) iter.Seq[Bucket] {
	return func(yield func(Bucket) bool) {
		w.each(w.oldest(now), w.buckets, yield)
	}
}

// Complete is Buckets without the last: only those that are over, one less than NewWindow was given. A sample that comes
// late may still change them.
func (w *Window) Complete(now time.Time) iter.Seq[Bucket] {
	return func(yield func(Bucket) bool) {
		w.each(w.oldest(now), w.buckets-1, yield)
	}
}

// Total returns all Buckets as one. Its Start is that of the oldest.
func (w *Window) Total(now time.Time) Bucket {
	oldest := w.oldest(now)
	total := Bucket{Start: w.start(oldest)}
	for i := range int64(w.buckets) {
		if b := w.find(oldest + i); b != nil {
			total.merge(b)
		}
	}
	return total
}

// oldest returns the first slot of the window that ends with the slot of now.
func (w *Window) oldest(now time.Time) int64 {
	return w.at(now) - int64(w.buckets) + 1
}

func (w *Window) each(first int64, n int, yield func(Bucket) bool) {
	for slot := first; slot != first+int64(n); slot++ {
		b := Bucket{Start: w.start(slot)}
		if found := w.find(slot); found != nil {
			b.merge(found)
		}
		if !yield(b) {
			return
		}
	}
}

func (w *Window) find(slot int64) *bucket {
	if b := w.ring[w.place(slot)].Load(); b != nil && b.slot == slot {
		return b
	}
	return nil
}

func (b *Bucket) merge(from *bucket) {
	count := from.count.Load() // first, because add counts last
	least, most := from.min.Load(), from.max.Load()
	if b.Count == 0 {
		b.Min, b.Max = least, most
	}
	b.Min, b.Max = min(b.Min, least), max(b.Max, most)
	b.Sum += from.sum.Load()
	b.Count += count
}
