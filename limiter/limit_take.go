package limiter

import (
	"context"
	"math"
	"time"

	"github.com/spillway-go/spillway"
)

// A verdict is how an attempt to take tokens ended.
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

// refusal returns the rejection of a request that was not admitted.
func (l *limit[S]) refusal(m moment, n, wait int64, v verdict) *spillway.Rejection {
	switch {
	case v == impossible:
		return l.reject.cost(n)
	case l.ends != nil && wait < horizon:
		return l.ends.until(l.reject, m.ns, m.ns+wait)
	}
	return l.reject.after(time.Duration(wait))
}

// failure is refusal for those who call directly.
func (l *limit[S]) failure(m moment, n int, wait int64, v verdict) error {
	rej := l.refusal(m, int64(n), wait, v)
	if v != impossible {
		return rej
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return &CostError{Limit: rej.Policy, Cost: n, Max: int(min(l.core.max(), math.MaxInt)), rejection: rej}
}

// patience returns how long ctx lets somebody wait who begins at now.
func patience(ctx context.Context, now time.Time) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return deadline.Sub(now)
	}
	return never
}
