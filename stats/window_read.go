package stats

import (
	"iter"
	"time"
)

// A Bucket sums up the samples of a Window from Start on: for one bucket's span, or, in the result of Total, for the
// whole window. Without samples, all fields but Start are 0.
type Bucket struct {
	Start time.Time
	Count int64 // samples
	Sum   int64 // of their values
	Min   int64 // the least value
	Max   int64 // the greatest value
}

// Buckets returns the buckets of the window that ends with the bucket of now, oldest first. There are always as many as
// NewWindow was given, including empty ones. The last one is being filled.
//
// Values are read one by one while other goroutines may write: a sample that is being added may show in Sum, Min and
// Max before it shows in Count.
func (w *Window) Buckets(now time.Time) iter.Seq[Bucket] {
	return func(yield func(Bucket) bool) {
		w.each(w.oldest(now), w.buckets, yield)
	}
}

// Complete returns Buckets without the last one: only buckets whose time is over, one fewer than NewWindow was given. A
// late sample may still change them.
func (w *Window) Complete(now time.Time) iter.Seq[Bucket] {
	return func(yield func(Bucket) bool) {
		w.each(w.oldest(now), w.buckets-1, yield)
	}
}

// Total returns all Buckets as one. Its Start is the Start of the oldest.
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
