package overload

import (
	"sync/atomic"
	"time"
)

// The constants of the throttle.
const (
	accepts     = 1.4 // requests that are sent for each accepted one: K in the book
	acceptsTold = 2.0 // the same while the server says what it wants: only the first moment of an overload is cut off
	enough      = 0.9 // share that a server wants to have held back from which on it may want more than it can say
	bucketSpan  = 500 * time.Millisecond
	buckets     = 8
	window      = buckets * bucketSpan
	minRequests = 20 // in the window, below which nothing is refused
	trust       = 5  // accepted requests in a row, over a second, after which the past is forgotten
)

// A throttle refuses a share of the requests to a server that refuses many: max(0, (requests - K × accepts) / (requests + 1))
// over the last four seconds, from "Site Reliability Engineering", chapter "Handling Overload". Requests count when they
// are answered. The zero throttle refuses nothing. Its methods may be called concurrently; a count may get lost when a
// bucket begins.
type throttle struct {
	last    atomic.Int64 // when the server last refused; 0 is never
	since   atomic.Int64 // requests accepted since then
	counted [buckets]bucket
}

type bucket struct {
	turn           atomic.Int64 // of all time
	requests, good atomic.Int64
}

// refuses reports whether to refuse a request, at random.
func (t *throttle) refuses(now time.Duration, accepts float64) bool {
	last := t.last.Load()
	if last == 0 {
		return false
	}
	if calm := now - time.Duration(last); calm < 0 || calm >= window || calm >= time.Second && t.since.Load() >= trust {
		return false
	}
	var requests, good int64
	turn := int64(now / bucketSpan)
	for i := range t.counted {
		if b := &t.counted[i]; turn-b.turn.Load() < buckets {
			requests += b.requests.Load()
			good += b.good.Load()
		}
	}
	if requests < minRequests {
		return false
	}
	return chance(now, throttled)*float64(requests+1) < float64(requests)-accepts*float64(good)
}

// dropped counts a request that the server refused.
func (t *throttle) dropped(now time.Duration) {
	t.since.Store(0)
	t.last.Store(max(int64(now), 1))
	t.count(now, false)
}

// accepted counts a request that the server did not refuse.
func (t *throttle) accepted(now time.Duration) {
	if last := t.last.Load(); last == 0 || now-time.Duration(last) >= window {
		return // nothing was refused lately, so nothing needs to be known
	}
	t.since.Add(1)
	t.count(now, true)
}

// count counts a request.
func (t *throttle) count(now time.Duration, good bool) {
	turn := int64(now / bucketSpan)
	b := &t.counted[turn&(buckets-1)]
	if old := b.turn.Load(); old != turn && b.turn.CompareAndSwap(old, turn) {
		b.requests.Store(0)
		b.good.Store(0)
	}
	b.requests.Add(1)
	if good {
		b.good.Add(1)
	}
}
