package stats

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// maxBuckets bounds the ring of a Window or Histogram.
const maxBuckets = 1 << 16

// slots cuts time into numbered spans of equal length. Numbers count from a base, the first instant of any call. They
// do not depend on the time of the last call or on pauses between calls. Instants before the base have negative
// numbers.
type slots struct {
	span time.Duration
	base atomic.Pointer[time.Time]
	last atomic.Int64 // a slot seen recently, never negative, tried first because a multiplication is cheaper than a division
}

// at returns the number of the slot that holds now. The result of Sub is monotonic if both times have a monotonic
// reading. It saturates at ±292 years, which gives the first or last possible slot.
func (s *slots) at(now time.Time) int64 {
	base := s.base.Load()
	if base == nil {
		base = s.anchor(now)
	}
	since := now.Sub(*base)
	last := s.last.Load()
	if start := time.Duration(last) * s.span; since >= start && since-start < s.span {
		return last
	}
	return s.divide(since)
}

// start returns the instant at which slot begins.
func (s *slots) start(slot int64) time.Time {
	return s.base.Load().Add(time.Duration(slot) * s.span)
}

func (s *slots) anchor(now time.Time) *time.Time {
	if s.base.CompareAndSwap(nil, &now) {
		return &now
	}
	return s.base.Load()
}

func (s *slots) divide(since time.Duration) int64 {
	slot := int64(since / s.span)
	if since%s.span < 0 {
		slot--
	}
	if slot > s.last.Load() { // a late caller must not spoil the guess of the others
		s.last.Store(slot)
	}
	return slot
}

// ringSize rounds up to a power of two, so that a slot finds its place without a division.
func ringSize(n int) int {
	return 1 << bits.Len(uint(n-1))
}
