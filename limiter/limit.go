package limiter

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

// A limit holds the common part of all limits that count tokens: the Policy, the direct methods, and the lock around a
// state.
type limit[S any] struct {
	clock  clock
	reject refusals
	// calendar is true for windows of the calendar.
	calendar bool
	// closed is the time until which nothing passes, unless tokens are given back. With it, refusals during a flood
	// take no lock.
	closed atomic.Int64
	fast   stats.Counter // refusals without the lock

	mu sync.Mutex
	// Guarded by mu.
	state  S
	counts counts
	core   core[S]
	plan   *plan[S] // its core is as it was planned
}

type counts struct{ admitted, refused, impossible, returned int64 }

// open is the value of closed while the limit may have tokens.
const open = 0

// newLimit returns a limit for a plan, or the error of the plan.
func newLimit[S any](p plan[S], err error) (Limiter, error) {
	if err != nil {
		return nil, err
	}
	l := new(limit[S])
	l.make(p)
	return l, nil
}

// make sets up a zero limit.
func (l *limit[S]) make(p plan[S]) {
	l.clock = newClock()
	l.reject.Set = p.rejections()
	l.calendar = p.calendar
	l.core, l.plan = p.core, &p
	if _, ok := p.rule.(FixedWindow); ok {
		l.reject.ends = new(countdown)
	}
}

// Admit takes the cost of r, at its arrival. It never waits.
func (l *limit[S]) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	n := costOf(&r)
	m := l.clock.moment(r.Arrived)
	wait, stamp, v := l.take(m, n, 0)
	if v == taken {
		return spillway.Ticket(stamp), nil
	}
	return 0, l.reject.of(m, n, wait, v)
}

// Done gives back the tokens of r if it was [spillway.Refused]. For other outcomes it does nothing.
func (l *limit[S]) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	if res.Outcome == spillway.Refused {
		m := l.clock.moment(r.Arrived)
		l.giveBack(m, loan{n: costOf(&r), took: m.ns, stamp: uint64(t)})
	}
}

func (l *limit[S]) Allow() bool {
	m := moment{ns: l.clock.now()}
	if l.calendar {
		m = l.clock.moment(readClock())
	}
	_, _, v := l.take(m, 1, 0)
	return v == taken
}

func (l *limit[S]) AllowAt(now time.Time, n int) error {
	m := l.clock.moment(now)
	wait, _, v := l.take(m, int64(n), 0)
	if v == taken {
		return nil
	}
	return l.failure(m, n, wait, v)
}

func (l *limit[S]) Wait(ctx context.Context, n int) error { return waitFor(ctx, l.ReserveAt, n) }

func (l *limit[S]) ReserveAt(now time.Time, n int, maxWait time.Duration) (Reservation, error) {
	m := l.clock.moment(now)
	wait, stamp, v := l.take(m, int64(n), int64(min(max(maxWait, 0), horizon)))
	if v != taken {
		return Reservation{}, l.failure(m, n, wait, v)
	}
	return Reservation{from: l, n: int64(n), at: m.ns, stamp: stamp, delay: time.Duration(wait)}, nil
}

func (l *limit[S]) PeekAt(now time.Time) State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.core.peek(&l.state, l.clock.moment(now))
}

func (l *limit[S]) Idle(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.core.idle(&l.state, l.clock.moment(now))
}

func (l *limit[S]) Quota(now time.Time, _ spillway.Request) spillway.Quota {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.core.peek(&l.state, l.clock.moment(now))
	return spillway.Quota{Name: l.reject.Policy, Limit: s.Limit, Remaining: s.Remaining, Window: l.core.window(), Reset: s.NextIn}
}

func (l *limit[S]) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts.stats(&l.reject, l.fast.Value())
}

// Release does nothing: time gives tokens back.
func (l *limit[S]) Release(int) {}

func (l *limit[S]) Rule() Rule {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.plan.rule
}

func (l *limit[S]) Tune(rule Rule) error { return l.TuneAt(readClock(), rule) }

func (l *limit[S]) TuneAt(now time.Time, rule Rule) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tune(l.clock.moment(now), rule)
}

func (l *limit[S]) Check(rule Rule) (Rule, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next, err := l.plan.next(rule)
	return next.rule, err
}

// tune is like TuneAt. The caller holds the lock.
func (l *limit[S]) tune(m moment, rule Rule) error {
	next, err := l.plan.next(rule)
	if err != nil {
		return err
	}
	c := next.core.since(m.ns, &l.state)
	c.adopt(&l.state, m, l.core)
	l.core, l.plan = c, &next
	l.closed.Store(open)
	return nil
}

// stats returns the counts of a limit with one reason to refuse; fast of its refusals are not in c.
func (c *counts) stats(r *refusals, fast int64) Stats {
	s := Stats{Name: r.Policy, Admitted: c.admitted, Impossible: c.impossible, Returned: c.returned}
	s.refuse(r.Reason, c.refused+fast)
	return s
}

// A verdict is the result of an attempt to take tokens.
type verdict uint8

const (
	refused    verdict = iota // not now
	taken                     // yes
	impossible                // never
)

func (l *limit[S]) take(m moment, n, maxWait int64) (wait int64, stamp uint64, v verdict) {
	if closed := l.closed.Load(); m.ns < closed && n == 1 && maxWait == 0 {
		l.fast.Add(1)
		return closed - m.ns, 0, refused
	}
	l.mu.Lock()
	if n < 0 || n > l.core.max() {
		l.counts.impossible++
		l.mu.Unlock()
		return 0, 0, impossible
	}
	ok := n == 0
	if !ok {
		wait, stamp, ok = l.core.take(&l.state, m, n, maxWait)
	}
	if ok {
		l.counts.admitted++
		l.mu.Unlock()
		return wait, stamp, taken
	}
	l.counts.refused++
	if n == 1 && !l.calendar {
		l.closed.Store(m.ns + min(wait, horizon))
	}
	l.mu.Unlock()
	return wait, 0, refused
}

func (l *limit[S]) giveBack(m moment, b loan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.n < 0 {
		return
	}
	b.n = min(b.n, l.core.max()) // it may have been lowered
	l.core.giveBack(&l.state, m, b)
	l.counts.returned++
	l.closed.Store(open)
}

// failure returns the error of a direct call that was not admitted.
func (l *limit[S]) failure(m moment, n int, wait int64, v verdict) error {
	rej := l.reject.of(m, int64(n), wait, v)
	if v != impossible {
		return rej
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return &CostError{Limit: rej.Policy, Cost: n, Max: int(min(l.core.max(), math.MaxInt)), rejection: rej}
}

// patience returns the time from now to the deadline of ctx.
func patience(ctx context.Context, now time.Time) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return deadline.Sub(now)
	}
	return never
}
