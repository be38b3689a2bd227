package limiter

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/rejections"
	"github.com/spillway-go/spillway/stats"
)

// A Concurrency is the [Rule] that lets at most Limit requests run at once: a semaphore that refuses instead of
// blocking. A request of cost n takes n places. In a [Queue], requests wait for their turn.
//
// It limits the requests in flight, not a rate: it protects resources that run out when requests pile up, such as
// memory or a pool of connections. So it refuses for lack of room (503), not because of a quota (429). It takes no
// lock. When Limit is lowered, running requests continue, and no new request is admitted until there is room.
type Concurrency struct {
	// Limit is how many requests may run at once, at least 1. It is required.
	Limit int
	// Name is the name of the limit in rejections and metrics, in printable ASCII. If Name is empty, it is
	// "concurrency".
	Name string
}

func (r Concurrency) plan() (p plan[int64], err error) {
	const kind = "Concurrency"
	if err := validatePlaces(kind, r.Limit); err != nil {
		return p, err
	}
	r.Name, err = named(kind, r.Name, "concurrency")
	return plan[int64]{rule: r, kind: kind, name: r.Name, reason: rejections.Limit, room: true, core: &lending{limit: int64(r.Limit)}}, err
}

func validatePlaces(kind string, limit int) error {
	if limit < 1 || int64(limit) > math.MaxInt64/2 {
		return fmt.Errorf("limiter: %s: Limit must be at least 1, got %d", kind, limit)
	}
	return nil
}

func (r Concurrency) build() (Limiter, error) {
	p, err := r.plan()
	if err != nil {
		return nil, err
	}
	c := &places{plan: p, reject: p.rejections()}
	c.limit.Store(p.core.max())
	return c, nil
}

func (r Concurrency) keyed(maxKeys int) (keyedLimits, error) { return newKeyedLimits(maxKeys, r) }

// A places is the limit of a [Concurrency].
type places struct {
	limit    atomic.Int64
	inFlight atomic.Int64
	refused  stats.Counter
	reject   *rejections.Set
	plan     plan[int64] // as it was made
}

// Admit takes as many places as r costs. It never waits.
func (c *places) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	n := costOf(&r)
	if c.take(n) {
		return 0, nil
	}
	c.refused.Add(1)
	return 0, c.refusal(n)
}

// Done gives the places of r back, whatever the outcome.
func (c *places) Done(r spillway.Request, _ spillway.Ticket, _ spillway.Result) {
	c.release(costOf(&r))
}

func (c *places) Allow() bool { return c.take(1) }

func (c *places) AllowAt(_ time.Time, n int) error {
	if c.take(int64(n)) {
		return nil
	}
	c.refused.Add(1)
	rej := c.refusal(int64(n))
	if limit := c.limit.Load(); n < 0 || int64(n) > limit {
		return &CostError{Limit: c.plan.name, Cost: n, Max: int(limit), rejection: rej}
	}
	return rej
}

func (c *places) Wait(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.AllowAt(time.Time{}, n)
}

func (c *places) ReserveAt(now time.Time, n int, _ time.Duration) (Reservation, error) {
	if err := c.AllowAt(now, n); err != nil {
		return Reservation{}, err
	}
	return Reservation{from: c, n: int64(n)}, nil
}

// ns returns 0: a place has no time, because it is held until it is given back.
func (c *places) ns(time.Time) int64 { return 0 }

func (c *places) refund(_ time.Time, _ Reservation, n int64) { c.release(n) }

func (c *places) Release(n int) {
	if n < 0 {
		panic("limiter: Concurrency: Release of a negative number")
	}
	c.release(int64(n))
}

func (c *places) take(n int64) bool {
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

func (c *places) release(n int64) {
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

func (c *places) refusal(n int64) *spillway.Rejection {
	if n < 0 || n > c.limit.Load() {
		return c.reject.Cost(n)
	}
	return c.reject.Unknown()
}

func (c *places) Rule() Rule { return Concurrency{Limit: int(c.limit.Load()), Name: c.plan.name} }

func (c *places) Tune(rule Rule) error { return c.TuneAt(time.Time{}, rule) }

func (c *places) TuneAt(_ time.Time, rule Rule) error {
	next, err := c.plan.next(rule)
	if err == nil {
		c.limit.Store(next.core.max())
	}
	return err
}

func (c *places) Check(rule Rule) (Rule, error) {
	next, err := c.plan.next(rule)
	return next.rule, err
}

func (c *places) PeekAt(time.Time) State {
	limit := c.limit.Load()
	return State{Limit: limit, Remaining: max(limit-c.inFlight.Load(), 0)}
}

func (c *places) Idle(time.Time) bool { return c.inFlight.Load() == 0 }

func (c *places) Quota(now time.Time, _ spillway.Request) spillway.Quota {
	s := c.PeekAt(now)
	return spillway.Quota{Name: c.plan.name, Limit: s.Limit, Remaining: s.Remaining}
}

func (c *places) Stats() Stats {
	s := Stats{Name: c.plan.name, InFlight: c.inFlight.Load()}
	s.refuse(c.reject.Reason, c.refused.Value())
	return s
}

// lending is the rule of a Concurrency for a Keyed, where the lock of a shard guards the count in flight.
type lending struct{ limit int64 }

func (p *lending) take(inFlight *int64, _ moment, n, _ int64) (wait int64, stamp uint64, ok bool) {
	if n > p.limit-*inFlight {
		return int64(never), 0, false
	}
	*inFlight += n
	return 0, 0, true
}

func (p *lending) giveBack(inFlight *int64, _ moment, l loan) {
	*inFlight = max(*inFlight-l.n, 0)
}

func (p *lending) peek(inFlight *int64, _ moment) State {
	return State{Limit: p.limit, Remaining: max(p.limit-*inFlight, 0)}
}

func (p *lending) idle(inFlight *int64, _ moment) bool { return *inFlight == 0 }

func (p *lending) since(int64, *int64) core[int64] { return p }

// heir returns an empty state, because places taken from s are given back to s.
func (p *lending) heir(*int64, moment) int64 { return 0 }

func (p *lending) max() int64 { return p.limit }

func (p *lending) window() time.Duration { return 0 }

func (p *lending) follows(core[int64]) error { return nil }

func (p *lending) adopt(*int64, moment, core[int64]) {}
