package limiter

import (
	"context"
	"time"
)

// A Reservation holds tokens that may be used after a delay. It is a value to be kept in one variable. The zero Reservation
// holds nothing. Its methods must not be called at the same time as one another.
type Reservation struct {
	from  source
	key   string
	n     int64 // that it holds
	at    int64 // when it was made, in ns of the source
	stamp uint64
	spot  *spot // in a Shaper, if it had to queue
	delay time.Duration
}

// A source is where a Reservation is from.
type source interface {
	ns(t time.Time) int64
	// refund takes back n of the tokens of r, of which it holds at least so many.
	refund(now time.Time, r Reservation, n int64)
}

// Delay returns how long after it was made the tokens of the Reservation may be used; 0 if at once.
func (r *Reservation) Delay() time.Duration { return r.delay }

// Cancel calls [Reservation.CancelAt] with the current time.
func (r *Reservation) Cancel() { r.CancelAt(readClock()) }

// CancelAt gives all tokens back, because they will not be used. It does nothing if the delay has passed, as in x/time: the
// tokens count as used then. So "defer r.Cancel()" is safe.
func (r *Reservation) CancelAt(now time.Time) {
	if r.from != nil && r.from.ns(now) <= r.at+int64(r.delay) {
		r.refund(now, r.n)
	}
}

// RefundAt gives back n of the tokens, or all that r still holds if those are fewer, because they were not used: a request was
// reserved for by an estimate, and cost less. It does nothing if n is not positive.
//
// The limit never lets more pass than if these tokens had not been taken. So tokens come back only as far as the passage of
// time has not returned them already, and those of a window that is over do not. Some limits may return fewer: the level of a
// [Bucket] does not show whose tokens leaked, and while callers wait in it, each with its time, only the last of them can leave.
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
