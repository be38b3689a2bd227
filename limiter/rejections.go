package limiter

import (
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/rejections"
)

// errZero is what zero values answer.
var errZero = &spillway.Rejection{Policy: "limiter", Reason: rejections.NotMade}

// refusals are the rejections of one limit.
type refusals struct {
	*rejections.Set
	// ends counts down to the end of a window that is the same for all requests. It may be nil.
	ends *countdown
}

// of returns the rejection of a request of n tokens that was not admitted.
func (r *refusals) of(m moment, n, wait int64, v verdict) *spillway.Rejection {
	switch {
	case v == impossible:
		return r.Cost(n)
	case r.ends != nil && wait < horizon:
		return r.ends.until(r, m.ns, m.ns+wait)
	}
	return r.after(time.Duration(wait))
}

// after returns the rejection of a request that should be tried again after wait.
func (r *refusals) after(wait time.Duration) *spillway.Rejection {
	if wait >= horizon || wait < 0 {
		return r.Unknown()
	}
	return r.After(max(wait, 1))
}

// republished is how often a rejection that counts down is published again.
const republished = 100 * time.Millisecond

// A countdown is a rejection whose RetryAfter leads to a fixed instant, such as the end of a window. It is published again at
// most every 100 ms, so its RetryAfter is off by at most that much.
type countdown struct {
	shown atomic.Pointer[countdownAt]
}

type countdownAt struct {
	rejection spillway.Rejection
	from, to  int64 // ns: when it was published, and where it leads
}

// until returns the rejection of a request at now that should be tried again at to. It is not for requests that must
// wait longer because they cost more.
func (c *countdown) until(r *refusals, now, to int64) *spillway.Rejection {
	s := c.shown.Load()
	switch {
	case s == nil, to > s.to, now < s.from-int64(republished), now >= s.from+int64(republished):
		s = &countdownAt{rejection: r.Build(r.Reason, time.Duration(to-now)), from: now, to: to}
		c.shown.Store(s)
	case to < s.to-int64(republished):
		return r.after(time.Duration(to - now))
	}
	return &s.rejection
}
