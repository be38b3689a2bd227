package cluster

import (
	"math"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/roundup"
	"github.com/spillway-go/spillway/limiter"
)

// ReasonUnavailable is the reason of a [spillway.Rejection] when Redis does not answer and the fallback refuses: the service
// lacks something, and the caller has not used up its limit.
const ReasonUnavailable = "redis unavailable"

// rejections are the refusals of one rule. All refused requests share them, and each is built when it is first needed.
type rejections struct {
	policy, reason string
	over           bool
	unknown        spillway.Rejection // without a time to retry
	tooLarge       spillway.Rejection
	negative       spillway.Rejection
	steps          roundup.Steps[spillway.Rejection]
}

func newRejections(policy, reason string, over bool) *rejections {
	r := &rejections{policy: policy, reason: reason, over: over}
	r.unknown = r.build(reason, 0)
	r.tooLarge = r.build(limiter.ReasonTooLarge, 0)
	r.negative = r.build(limiter.ReasonNegative, 0)
	return r
}

// reason returns why the rule refuses, in the words of package limiter.
func (r rule) reason() string {
	if r.kind == bucketKind {
		return limiter.ReasonRate
	}
	return limiter.ReasonQuota
}

func (r *rejections) build(reason string, retryAfter time.Duration) spillway.Rejection {
	return spillway.Rejection{Policy: r.policy, Reason: reason, RetryAfter: retryAfter, OverQuota: r.over}
}

// cost returns the rejection of a cost that can never pass.
func (r *rejections) cost(n int) *spillway.Rejection {
	if n < 0 {
		return &r.negative
	}
	return &r.tooLarge
}

// after returns the rejection of a request that should be tried again after wait.
func (r *rejections) after(wait time.Duration) *spillway.Rejection {
	if wait <= 0 {
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

// costError returns the error of package limiter for a call that can never pass. A limit of that package with the same
// name and size makes it, so that it wraps the same error.
func costError(name string, n int, most int64) error {
	w, err := limiter.New(limiter.FixedWindow{
		Limit: int(min(most, math.MaxInt)), Period: time.Hour, Name: name,
	})
	if err != nil {
		return err // the name and the limit were validated, so this is not reached
	}
	return w.AllowAt(time.Time{}, n)
}

// retryAfter returns the RetryAfter of a rejection, or 0.
func retryAfter(err error) time.Duration {
	if rej := spillway.RejectionOf(err); rej != nil {
		return rej.RetryAfter
	}
	return 0
}
