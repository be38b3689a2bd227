package stats

import (
	"fmt"
	"sync/atomic"
	"time"
)

// A Window keeps the samples of the last span of time, in buckets of equal length. Its callers pass the time that moves
// it on; it has no clock, no ticker and no goroutine.
//
// Buckets are aligned to the first instant passed to a Window, and numbered from it. A sample goes to the bucket of its
// own instant, even after an idle gap or if it is late. If its bucket has left the window, the sample is dropped, never
// counted in a newer bucket. A sample from before the first instant counts like any other. Times should come from one
// clock. A sample far in the future replaces current buckets until that time.
//
// Add does not lock. It allocates 128 bytes when a bucket begins, and otherwise nothing. Methods may be called
// concurrently, and no sample is lost when many callers begin a new bucket.
//
// A Window of outcomes can record 1 for a failure and 0 for a success: then Count is the number of requests, and Sum is
// the number of failures.
type Window struct {
	slots
	buckets int
	newest  atomic.Pointer[bucket] // tried first; may lag behind the ring, but is never wrong about its own slot
	ring    []atomic.Pointer[bucket]
}

// bucket collects the samples of one slot only. Buckets are not reused: when the slot leaves the window, the ring
// forgets the bucket, and a writer that still holds it does no harm. A bucket fills 128 bytes, so no two buckets share
// a cache line.
type bucket struct {
	slot  int64
	start time.Duration // since the base
	count atomic.Int64
	sum   atomic.Int64
	min   atomic.Int64
	max   atomic.Int64
	_     [128 - 6*8]byte
}

// NewWindow returns a Window over the last span, cut into the given number of buckets, including the one being filled.
// Buckets must be in [1, 65536], and span a positive multiple of it in nanoseconds.
func NewWindow(span time.Duration, buckets int) (*Window, error) {
	if buckets < 1 || buckets > maxBuckets {
		return nil, fmt.Errorf("stats: Window: buckets must be at least 1 and at most %d, got %d", maxBuckets, buckets)
	}
	if span <= 0 || span%time.Duration(buckets) != 0 {
		return nil, fmt.Errorf("stats: Window: span must be a positive multiple of buckets (%d) nanoseconds, got %v", buckets, span)
	}
	w := &Window{
		buckets: buckets,
		ring:    make([]atomic.Pointer[bucket], ringSize(buckets)),
	}
	w.slots.span = span / time.Duration(buckets)
	return w, nil
}

// Add records the sample v at the instant now. The sum of a bucket wraps around when it exceeds an int64.
func (w *Window) Add(now time.Time, v int64) {
	base := w.base.Load()
	if base == nil {
		base = w.anchor(now)
	}
	since := now.Sub(*base)
	if b := w.newest.Load(); b != nil {
		if since >= b.start && since-b.start < w.slots.span {
			b.add(v)
			return
		}
	}
	w.addElsewhere(w.divide(since), v)
}

func (b *bucket) add(v int64) {
	// The loads come first, because an atomic add delays the loads after it.
	for least := b.min.Load(); v < least && !b.min.CompareAndSwap(least, v); {
		least = b.min.Load()
	}
	for most := b.max.Load(); v > most && !b.max.CompareAndSwap(most, v); {
		most = b.max.Load()
	}
	b.sum.Add(v)
	b.count.Add(1) // last, so that a reader that sees the count also sees the rest of the sample
}

// addElsewhere adds v to the bucket of slot when that is not the newest, or not there yet.
func (w *Window) addElsewhere(slot, v int64) {
	place := &w.ring[w.place(slot)]
	for {
		old := place.Load()
		switch {
		case old == nil || old.slot < slot:
			b := w.newBucket(slot, v)
			if place.CompareAndSwap(old, b) {
				w.advance(b)
				return
			}
		case old.slot == slot:
			old.add(v)
			return
		default:
			return // the slot has left the window
		}
	}
}

// newBucket returns a bucket that already holds v, so that readers never see it empty.
func (w *Window) newBucket(slot, v int64) *bucket {
	b := &bucket{slot: slot, start: time.Duration(slot) * w.slots.span}
	b.count.Store(1)
	b.sum.Store(v)
	b.min.Store(v)
	b.max.Store(v)
	return b
}

// advance makes b the newest bucket unless there is a newer one. Slots before the base stay out, so that since-b.start
// cannot overflow.
func (w *Window) advance(b *bucket) {
	for b.slot >= 0 {
		newest := w.newest.Load()
		if newest != nil && newest.slot >= b.slot || w.newest.CompareAndSwap(newest, b) {
			return
		}
	}
}

// place returns the index of slot in the ring. The mask works for negative slots too.
func (w *Window) place(slot int64) int {
	return int(slot & int64(len(w.ring)-1))
}
