package limiter

import (
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/roundup"
)

// errZero is what zero values answer.
var errZero = &spillway.Rejection{Policy: "limiter", Reason: ReasonZero}

// rejections are the refusals of one limit: shared by all refused requests, and built when first needed.
type rejections struct {
	policy, reason string
	over           bool
	unknown        spillway.Rejection // nobody knows when
	tooLarge       spillway.Rejection
	negative       spillway.Rejection
	steps          roundup.Steps[spillway.Rejection]
}

func newRejections(policy, reason string, over bool) *rejections {
	r := &rejections{policy: policy, reason: reason, over: over}
	r.unknown = r.build(reason, 0)
	r.tooLarge = r.build(ReasonTooLarge, 0)
	r.negative = r.build(ReasonNegative, 0)
	return r
}

func (r *rejections) build(reason string, retryAfter time.Duration) spillway.Rejection {
	return spillway.Rejection{Policy: r.policy, Reason: reason, RetryAfter: retryAfter, OverQuota: r.over}
}

// cost returns the rejection for a cost that can never pass.
func (r *rejections) cost(n int64) *spillway.Rejection {
	if n < 0 {
		return &r.negative
	}
	return &r.tooLarge
}

// after returns the rejection of a request that should be tried again after wait.
func (r *rejections) after(wait time.Duration) *spillway.Rejection {
	if wait >= horizon || wait < 0 {
		return &r.unknown
	}
	cell, told := r.steps.At(wait)
	if rej := cell.Load(); rej != nil {
		return rej
	}
	rej := r.build(r.reason, told)
	cell.CompareAndSwap(nil, &rej)
	return cell.Load()
}

// republished is how often a rejection that counts down is published anew.
const republished = 100 * time.Millisecond

// A countdown is a rejection whose RetryAfter leads to a fixed instant, such as the end of a window. It is published
// anew at most every 100 ms, so its RetryAfter is off by at most that much.
type countdown struct {
	shown atomic.Pointer[countdownAt]
}

type countdownAt struct {
	rejection spillway.Rejection
	from, to  int64 // ns: when it was published, and where it leads
}

// until returns the rejection of a request at now that should be tried again at to. It is not for requests that must
// wait longer because they cost more.
func (c *countdown) until(r *rejections, now, to int64) *spillway.Rejection {
	s := c.shown.Load()
	switch {
	case s == nil, to > s.to, now < s.from-int64(republished), now >= s.from+int64(republished):
		s = &countdownAt{rejection: r.build(r.reason, time.Duration(to-now)), from: now, to: to}
		c.shown.Store(s)
	case to < s.to-int64(republished):
		return r.after(time.Duration(to - now))
	}
	return &s.rejection
}
