package limiter

import (
	"context"
	"time"

	"github.com/spillway-go/spillway"
)

// A meter is a limit by gcra. It repeats the two methods that services call most, without the indirections of limit.
type meter struct {
	limit[gcraState]
	g *gcra // the core; guarded by mu
}

// setUp makes a zero meter.
func (b *meter) setUp(kind string, rate Rate, burst int, burstName, name, defaultName string) error {
	g, err := newGCRA(kind, rate, burst, burstName)
	if err == nil {
		err = validateName(kind, name)
	}
	if err != nil {
		return err
	}
	if name == "" {
		name = defaultName
	}
	b.g = g
	b.make(g, newRejections(name, ReasonRate, true))
	return nil
}

// Allow takes one token now, if there is one, and reports whether there was.
func (b *meter) Allow() bool {
	now := b.clock.now()
	if now < b.closed.Load() {
		b.fast.Add(1)
		return false
	}
	b.mu.Lock()
	if g := b.g; g != nil {
		level, last := g.levelAt(&b.state, now)
		if level += g.b; level <= g.full {
			b.state.level, b.state.last = level, last
			b.state.count(1)
			b.counts.admitted++
			b.mu.Unlock()
			return true
		}
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
	if g == nil {
		b.mu.Unlock()
		return 0, false
	}
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

func (b *meter) setLimit(now time.Time, kind string, rate Rate, burst int, burstName string) error {
	g, err := newGCRA(kind, rate, burst, burstName)
	if err != nil {
		return err
	}
	return b.update(now, func(core[gcraState]) (core[gcraState], error) {
		g.from = max(b.clock.ns(now), b.state.last)
		b.g = g
		return g, nil
	})
}
