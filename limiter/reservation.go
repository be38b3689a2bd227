package limiter

import (
	"context"
	"time"
)

// A Reservation holds tokens that may be used after a delay. It is a value to be kept in one variable. The zero Reservation
// holds nothing.
type Reservation struct {
	from  canceller
	key   string
	n     int64
	stamp uint64
	spot  *spot // in a Shaper, if it had to queue
	delay time.Duration
}

// A canceller is where a Reservation is from.
type canceller interface {
	cancel(now time.Time, r Reservation)
}

// Delay returns how long after it was made the tokens of the Reservation may be used; 0 if at once.
func (r *Reservation) Delay() time.Duration { return r.delay }

// Cancel is [Reservation.CancelAt] now.
func (r *Reservation) Cancel() { r.CancelAt(readClock()) }

// CancelAt says that the tokens will not be used, and gives all of them back that the passage of time has not given back
// already. What others reserved since makes no difference. If the rate was lowered since, that may be less; if one who reserved
// before cancelled meanwhile, it may be more, by what time gave back since r was made. The first call counts; later ones do
// nothing. It must not be called at the same time as another method of r.
func (r *Reservation) CancelAt(now time.Time) {
	if r.from != nil {
		r.from.cancel(now, *r)
		r.from = nil
	}
}

// sleep waits for the delay, or cancels if ctx ends first.
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
		r.Cancel()
		return ctx.Err()
	}
}

func (l *limit[S]) cancel(now time.Time, r Reservation) {
	l.giveBack(l.clock.moment(now), r.stamp, r.n)
}
