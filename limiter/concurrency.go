package limiter

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

// A Concurrency lets at most Limit requests run at once: a semaphore that refuses instead of blocking. A request of cost n
// takes n places. A [Queue] has others wait for their turn.
//
// It limits what is in flight, not a rate: it protects what runs out when requests pile up, such as memory or a pool of
// connections. So its refusals are for lack of room (503), not of quota (429).
//
// It is made by [NewConcurrency]; the zero Concurrency denies everything. All methods may be called concurrently, and none
// takes a lock.
type Concurrency struct {
	limit    atomic.Int64
	inFlight atomic.Int64
	refused  stats.Counter
	reject   *rejections // nil in the zero value
}

// ConcurrencyOptions tune a [Concurrency]. Limit has to be set.
type ConcurrencyOptions struct {
	// Limit is how many requests may run at once, at least 1.
	Limit int
	// Name is what rejections and metrics call the limit, in printable ASCII. If Name is empty, it is "concurrency".
	Name string
}

// ConcurrencyStats is a snapshot of a [Concurrency].
type ConcurrencyStats struct {
	Name     string
	Limit    int64
	InFlight int64 // places taken; above Limit for a while after that was lowered
	Refused  int64 // requests refused by Admit and Acquire; a bare TryAcquire is not counted, which would double its price
}

// NewConcurrency returns a Concurrency with nothing in flight. The error names the field that cannot be right.
func NewConcurrency(o *ConcurrencyOptions) (*Concurrency, error) {
	var opts ConcurrencyOptions
	if o != nil {
		opts = *o
	}
	if opts.Name == "" {
		opts.Name = "concurrency"
	}
	if err := validateName("Concurrency", opts.Name); err != nil {
		return nil, err
	}
	c := &Concurrency{reject: newRejections(opts.Name, ReasonLimit, false)}
	if err := c.SetLimit(opts.Limit); err != nil {
		return nil, err
	}
	return c, nil
}

// Admit takes as many places as r costs. It never waits.
func (c *Concurrency) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	n := costOf(&r)
	if c.take(n) {
		return 0, nil
	}
	c.refused.Add(1)
	return 0, c.refusal(n)
}

// Done gives the places of r back, however it went.
func (c *Concurrency) Done(r spillway.Request, _ spillway.Ticket, _ spillway.Result) {
	c.release(costOf(&r))
}

// TryAcquire takes one place if one is free, and reports whether it was. The caller gives it back with Release(1).
func (c *Concurrency) TryAcquire() bool { return c.take(1) }

// Acquire takes n places, to be given back with Release(n), and returns nil; or it takes none and returns a
// *[spillway.Rejection], or a *[CostError] if n is negative or greater than the limit.
func (c *Concurrency) Acquire(n int) error {
	if c.take(int64(n)) {
		return nil
	}
	c.refused.Add(1)
	rej := c.refusal(int64(n))
	if limit := c.limit.Load(); c.reject != nil && (n < 0 || int64(n) > limit) {
		return &CostError{Limit: c.reject.policy, Cost: n, Max: int(limit), rejection: rej}
	}
	return rej
}

// Release gives n places back. It panics if fewer are taken, and then changes nothing.
func (c *Concurrency) Release(n int) {
	if n < 0 {
		panic("limiter: Concurrency: Release of a negative number")
	}
	c.release(int64(n))
}

func (c *Concurrency) take(n int64) bool {
	for {
		taken, limit := c.inFlight.Load(), c.limit.Load()
		if n < 0 || n > limit-taken {
			return false
		}
		if c.inFlight.CompareAndSwap(taken, taken+n) {
			return true
		}
	}
}

func (c *Concurrency) release(n int64) {
	for {
		taken := c.inFlight.Load()
		if n > taken {
			panic("limiter: Concurrency: released more than was acquired")
		}
		if c.inFlight.CompareAndSwap(taken, taken-n) {
			return
		}
	}
}

func (c *Concurrency) refusal(n int64) *spillway.Rejection {
	switch {
	case c.reject == nil:
		return errZero
	case n < 0 || n > c.limit.Load():
		return c.reject.cost(n)
	}
	return &c.reject.unknown
}

// SetLimit changes how many requests may run at once. It does not wait: after a decrease, what runs goes on, and nothing
// new is let in until there is room. The error says that limit cannot be right, and then nothing has changed.
func (c *Concurrency) SetLimit(limit int) error {
	if limit < 1 || int64(limit) > math.MaxInt64/2 {
		return fmt.Errorf("limiter: Concurrency: Limit must be at least 1, got %d", limit)
	}
	if c.reject != nil {
		c.limit.Store(int64(limit))
	}
	return nil
}

// Peek returns what could be taken now. Nobody knows when there will be more.
func (c *Concurrency) Peek() State {
	limit := c.limit.Load()
	return State{Limit: limit, Remaining: max(limit-c.inFlight.Load(), 0)}
}

// Idle reports whether nothing is in flight.
func (c *Concurrency) Idle(time.Time) bool { return c.inFlight.Load() == 0 }

// Stats returns a snapshot. It may be called at any time.
func (c *Concurrency) Stats() ConcurrencyStats {
	s := ConcurrencyStats{Limit: c.limit.Load(), InFlight: c.inFlight.Load(), Refused: c.refused.Value()}
	if c.reject != nil {
		s.Name = c.reject.policy
	}
	return s
}

var _ spillway.Policy = (*Concurrency)(nil)
