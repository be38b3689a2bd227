package limiter

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

// A limit is what all limits that count tokens have in common: the Policy, the direct methods, and the lock around a
// state. Its zero value denies everything.
type limit[S any] struct {
	clock  clock
	reject *rejections
	// ends counts down to the end of a window that is the same for all requests. It may be nil.
	ends *countdown
	// calendar tells that the core looks at the wall clock, of which ns since the base say nothing.
	calendar bool
	// closed is up to when nothing passes, unless tokens are given back: so the refusals of a flood take no lock.
	closed atomic.Int64
	fast   stats.Counter // the refusals without lock

	mu sync.Mutex
	// Guarded by mu.
	state  S
	counts counts
	core   core[S] // nil in the zero value
}

type counts struct{ admitted, refused, impossible, returned int64 }

// open is the value of closed while the limit may have tokens.
const open = 0

// make sets up a zero limit.
func (l *limit[S]) make(c core[S], r *rejections) {
	l.clock = newClock()
	l.core = c
	l.reject = r
}

// Admit takes the cost of r, at its arrival. It never waits.
func (l *limit[S]) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	n := costOf(&r)
	m := l.clock.moment(r.Arrived)
	wait, stamp, v := l.take(m, n, 0)
	if v == taken {
		return spillway.Ticket(stamp), nil
	}
	return 0, l.refusal(m, n, wait, v)
}

// Done gives back what r took if it was [spillway.Refused]. Otherwise it does nothing: how a request went, and how long
// it took, is none of this limit's business.
func (l *limit[S]) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	if res.Outcome == spillway.Refused {
		m := l.clock.moment(r.Arrived)
		l.giveBack(m, loan{n: costOf(&r), took: m.ns, stamp: uint64(t)})
	}
}

// Allow takes one token now, if there is one, and reports whether there was.
func (l *limit[S]) Allow() bool {
	m := moment{ns: l.clock.now()}
	if l.calendar {
		m = l.clock.moment(readClock())
	}
	_, _, v := l.take(m, 1, 0)
	return v == taken
}

// AllowAt takes n tokens at now if there are as many, and returns nil. Otherwise it takes none and returns the
// *[spillway.Rejection] that says when to try again, or a *[CostError] if n is negative or can never pass. Taking 0 is
// always allowed. A time before that of an earlier call counts as that time.
func (l *limit[S]) AllowAt(now time.Time, n int) error {
	m := l.clock.moment(now)
	wait, _, v := l.take(m, int64(n), 0)
	if v == taken {
		return nil
	}
	return l.failure(m, n, wait, v)
}

// Wait takes n tokens and returns when their time has come. It returns at once, and takes nothing, if n can never pass (a
// *[CostError]), if ctx would end first (a *[spillway.Rejection] that matches [context.DeadlineExceeded] too), or if ctx has
// ended. If ctx ends while it waits, it gives the tokens back, as [Reservation.Refund] does, and returns ctx.Err().
//
// Those who wait are served in the order in which they came. A [Shaper] also moves up those who wait behind one who left,
// and bounds how many may wait.
func (l *limit[S]) Wait(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := readClock()
	res, err := l.ReserveAt(now, n, patience(ctx, now))
	if err != nil {
		return forDeadline(ctx, err)
	}
	return res.sleep(ctx)
}

// Reserve is [ReserveAt] now.
func (l *limit[S]) Reserve(n int, maxWait time.Duration) (Reservation, error) {
	return l.ReserveAt(readClock(), n, maxWait)
}

// ReserveAt takes n tokens at now, or before they are there if they will be within maxWait: the caller holds them, has to
// wait for [Reservation.Delay], may cancel until then, and may return unused tokens with [Reservation.Refund] later. Otherwise
// it takes none and returns an error as AllowAt does.
func (l *limit[S]) ReserveAt(now time.Time, n int, maxWait time.Duration) (Reservation, error) {
	m := l.clock.moment(now)
	wait, stamp, v := l.take(m, int64(n), int64(min(max(maxWait, 0), horizon)))
	if v != taken {
		return Reservation{}, l.failure(m, n, wait, v)
	}
	return Reservation{from: l, n: int64(n), at: m.ns, stamp: stamp, delay: time.Duration(wait)}, nil
}

// Peek returns what could be taken now, and takes nothing.
func (l *limit[S]) Peek() State { return l.PeekAt(readClock()) }

// PeekAt is Peek at now.
func (l *limit[S]) PeekAt(now time.Time) State {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core == nil {
		return State{}
	}
	return l.core.peek(&l.state, l.clock.moment(now))
}

// Idle reports whether at now the limit is as good as new, so that nothing is lost if it is forgotten.
func (l *limit[S]) Idle(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.core == nil || l.core.idle(&l.state, l.clock.moment(now))
}

// Quota returns what the limit has left at now, for the RateLimit header fields of HTTP.
func (l *limit[S]) Quota(now time.Time, _ spillway.Request) spillway.Quota {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core == nil {
		return spillway.Quota{}
	}
	s := l.core.peek(&l.state, l.clock.moment(now))
	return spillway.Quota{Name: l.reject.policy, Limit: s.Limit, Remaining: s.Remaining, Window: l.core.window(), Reset: s.NextIn}
}

// Stats returns a snapshot of the counts. It may be called at any time.
func (l *limit[S]) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.core == nil {
		return Stats{}
	}
	return l.counts.stats(l.reject.policy, l.fast.Value())
}

func (c *counts) stats(name string, fast int64) Stats {
	return Stats{Name: name, Admitted: c.admitted, Refused: c.refused + fast, Impossible: c.impossible, Returned: c.returned}
}
