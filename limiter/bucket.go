package limiter

import (
	"context"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/rejections"
)

// A Bucket is the [Rule] of a token bucket: it holds up to Burst tokens and gains tokens at a steady rate. A request
// passes if the bucket holds at least its cost. So at most Burst + rate × d requests pass in any time d. It begins
// full.
//
// A leaky bucket used as a meter is the same rule seen from the other side. It holds Burst and leaks at Rate. Each
// request pours its cost in, and a request that would make it overflow is refused. Its level is [State.Limit] -
// [State.Remaining]. The leaky bucket in which requests wait is a [Shaper].
//
// It is GCRA in integers: exact at any rate from one per day to a billion per second, whatever the pattern of requests.
type Bucket struct {
	// Rate is how fast tokens come back. It is required.
	Rate Rate
	// Burst is how many tokens the bucket holds, which is the greatest cost that can ever pass. If Burst is 0, it is
	// Rate.Tokens, or 1 if that is 0. Burst has an upper bound, so that nothing is ever rounded: 2^61 divided by the ns per
	// token, where Rate is a fraction in its lowest terms, and never more than 2^53. That is 26 000 at one per day and 2.3e9 at
	// one per second.
	Burst int
	// Name is the name of the limit in rejections, metrics and header fields, in printable ASCII. If Name is empty, it
	// is "token bucket".
	Name string
}

func (r Bucket) plan() (p plan[gcraState], err error) {
	const kind = "Bucket"
	g, err := newGCRA(kind, r.Rate, r.Burst, "Burst")
	if err != nil {
		return p, err
	}
	r.Burst = int(g.burst)
	r.Name, err = named(kind, r.Name, "token bucket")
	return plan[gcraState]{rule: r, kind: kind, name: r.Name, reason: rejections.Rate, core: g}, err
}

func (r Bucket) keyed(maxKeys int) (keyedLimits, error) { return newKeyedLimits(maxKeys, r) }

// A meter is the limit of a [Bucket]. It implements the two most called methods directly, without the indirections of
// limit.
type meter struct {
	limit[gcraState]
	g *gcra // the core; guarded by mu
}

func (r Bucket) build() (Limiter, error) {
	p, err := r.plan()
	if err != nil {
		return nil, err
	}
	b := new(meter)
	b.make(p)
	b.g = p.core.(*gcra) //nolint:forcetypeassert // of a Bucket
	return b, nil
}

func (b *meter) Allow() bool {
	now := b.clock.now()
	if now < b.closed.Load() {
		b.fast.Add(1)
		return false
	}
	b.mu.Lock()
	g := b.g
	level, last := g.levelAt(&b.state, now)
	if level += g.b; level <= g.full {
		b.state.level, b.state.last = level, last
		b.state.count(1)
		b.counts.admitted++
		b.mu.Unlock()
		return true
	}
	b.mu.Unlock()
	_, _, v := b.take(moment{ns: now}, 1, 0) // which knows how to refuse
	return v == taken
}

// Admit takes the cost of r, at its arrival. It never waits.
func (b *meter) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	now := b.clock.ns(r.Arrived)
	if uint(r.Cost) <= 1 {
		if closed := b.closed.Load(); now < closed {
			b.fast.Add(1)
			return 0, b.reject.after(time.Duration(closed - now))
		}
		if stamp, ok := b.takeOne(now); ok {
			return spillway.Ticket(stamp), nil
		}
	}
	return b.limit.Admit(ctx, r)
}

// takeOne takes one token if it is there, and changes nothing if it is not.
func (b *meter) takeOne(now int64) (stamp uint64, ok bool) {
	b.mu.Lock()
	g := b.g
	level, last := g.levelAt(&b.state, now)
	level += g.b
	if level > g.full {
		b.mu.Unlock()
		return 0, false
	}
	b.state.level, b.state.last = level, last
	stamp = b.state.count(1)
	b.counts.admitted++
	b.mu.Unlock()
	return stamp, true
}

func (b *meter) Tune(rule Rule) error { return b.TuneAt(readClock(), rule) }

func (b *meter) TuneAt(now time.Time, rule Rule) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.tune(b.clock.moment(now), rule)
	b.g = b.core.(*gcra) //nolint:forcetypeassert // of a Bucket
	return err
}
