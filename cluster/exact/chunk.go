package exact

import (
	"cmp"
	"math"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
)

// A chunk is the local state of a key.
type chunk struct {
	now      atomic.Pointer[batch] // fetched last; nil if none was
	fetching atomic.Bool           // a request is asking Redis

	// Owned by the request that has set fetching.
	size    int64 // to fetch next
	fetched int64 // ns since base
}

// A batch holds tokens of one window that were fetched together.
type batch struct {
	left  atomic.Int64 // negative after they have been given back
	until int64        // ns since base; then they are given back
	stamp int64        // of Redis
}

// givenBack is the count of a batch that no longer takes tokens.
const givenBack = math.MinInt64

// fromBatch marks the ticket of a request that took its tokens from a batch. The ticket also holds the stamp of the
// batch, so that the tokens never go to a batch of another window.
const fromBatch = 1<<ticketShift - 1

// ticket returns the ticket of a request that took tokens of the batch.
func (b *batch) ticket() spillway.Ticket { return spillway.Ticket(b.stamp)<<ticketShift | fromBatch }

// take takes n tokens of a batch that is still valid.
func (b *batch) take(now, n int64) bool {
	for now < b.until {
		left := b.left.Load()
		if left < n {
			return false
		}
		if b.left.CompareAndSwap(left, left-n) {
			return true
		}
	}
	return false
}

// add returns n tokens to a batch, unless the batch has been given back.
func (b *batch) add(n int64) bool {
	for {
		left := b.left.Load()
		if left < 0 {
			return false
		}
		if b.left.CompareAndSwap(left, left+n) {
			return true
		}
	}
}

// close ends the batch, and returns the number of tokens to give back. The caller has set fetching.
func (c *chunk) close() (int64, *batch) {
	b := c.now.Load()
	if b == nil {
		return 0, nil
	}
	return max(b.left.Swap(givenBack), 0), b
}

// next returns how many tokens to fetch: twice as many as last time if they were soon spent, half if not.
func (c *chunk) next(now, n, most int64, term time.Duration) int64 {
	if c.fetched > 0 && now-c.fetched < int64(term/4) {
		c.size *= 2
	} else {
		c.size /= 2
	}
	c.size = min(max(c.size, n), most)
	return c.size
}

// fill stores the fetched tokens, except n. They are valid until the window ends, by a clock that may run 2 % slow, and
// for a term at most.
func (c *chunk) fill(asked, n int64, r *Result, a *Allowance) *batch {
	c.size = max(min(c.size, r.Remaining/(4*a.nodes)), 1)
	c.fetched = asked
	ends := cmp.Or(r.FullIn, r.NextIn)
	b := &batch{until: asked + min(int64(a.term), ends.Nanoseconds()/100*98), stamp: r.stamp}
	b.left.Store(r.Taken - n)
	c.now.Store(b)
	return b
}
