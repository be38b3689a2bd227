package limiter

import (
	"context"
	"time"
)

// A Reservation holds tokens that may be used after a delay. It is a value; keep it in one variable. The zero
// Reservation holds nothing. Its methods must not be called concurrently.
type Reservation struct {
	from  source
	key   string
	n     int64 // that it holds
	at    int64 // when it was made, in ns of the source
	stamp uint64
	spot  *spot // in a Shaper, if it had to queue
	delay time.Duration
}

// A source is the limit that made a Reservation.
type source interface {
	ns(t time.Time) int64
	// refund takes back n of the tokens of r. r holds at least n.
	refund(now time.Time, r Reservation, n int64)
}

// Delay returns the time from the making of the Reservation until its tokens may be used; 0 if at once.
func (r *Reservation) Delay() time.Duration { return r.delay }

// CancelAt gives back all tokens, because they will not be used. As in x/time, it does nothing if the delay has passed:
// then the tokens count as used. So a deferred call is safe.
func (r *Reservation) CancelAt(now time.Time) {
	if r.from != nil && r.from.ns(now) <= r.at+int64(r.delay) {
		r.refund(now, r.n)
	}
}

// RefundAt gives back n of the tokens, or all that r still holds if those are fewer, because they were not used. For
// example, the reservation was an estimate, and the request cost less. It does nothing if n is not positive.
//
// A refund never lets more tokens pass than if these tokens had not been taken. So it does not return tokens that have
// already come back with time, nor tokens of a window that is over. Some limits may return fewer: the level of a
// [Bucket] does not show whose tokens leaked, and while callers wait for their times, only the last of them can leave.
func (r *Reservation) RefundAt(now time.Time, n int) {
	if r.from != nil && n > 0 {
		r.refund(now, min(int64(n), r.n))
	}
}

func (r *Reservation) refund(now time.Time, n int64) {
	r.from.refund(now, *r, n)
	if r.n -= n; r.n == 0 {
		r.from = nil
	}
}

// waitFor reserves n tokens and waits for their time.
func waitFor(ctx context.Context, reserveAt func(time.Time, int, time.Duration) (Reservation, error), n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := readClock()
	res, err := reserveAt(now, n, patience(ctx, now))
	if err != nil {
		return forDeadline(ctx, err)
	}
	return res.sleep(ctx)
}

// sleep waits for the delay, or gives the tokens back if ctx ends first.
func (r *Reservation) sleep(ctx context.Context) error {
	if r.delay <= 0 {
		return nil
	}
	timer := time.NewTimer(r.delay) //nolint:forbidigo // the shell that blocks
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		r.refund(readClock(), r.n)
		return ctx.Err()
	}
}

// loan returns n of the tokens that r holds.
func (r *Reservation) loan(n int64) loan {
	return loan{n: n, rest: r.n - n, took: r.at, stamp: r.stamp}
}

func (l *limit[S]) ns(t time.Time) int64 { return l.clock.ns(t) }

func (l *limit[S]) refund(now time.Time, r Reservation, n int64) {
	l.giveBack(l.clock.moment(now), r.loan(n))
}
