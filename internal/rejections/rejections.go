// Package rejections keeps the refusals of one limit. All refused requests share them, and each is built when it is first
// needed, so a refusal allocates nothing.
package rejections

import (
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/roundup"
)

// The reasons of limits, fit for metric labels.
const (
	Rate     = "rate exceeded"       // a bucket is empty, or a warm-up is not at full rate yet
	Quota    = "quota used up"       // a window is full
	Limit    = "limit reached"       // the maximum number of requests is running
	Full     = "queue full"          // the maximum number of requests is waiting
	Wait     = "wait too long"       // the request would wait, or has waited, too long
	Deadline = "deadline too near"   // the turn of the request would come after the deadline of its context
	Ousted   = "ousted from queue"   // the request waited, and lost its place to a request of higher priority
	TooLarge = "cost exceeds limit"  // it costs more than can ever pass
	Negative = "cost is negative"    // tokens are not minted that way
	NotMade  = "limiter is not made" // the limit is a zero value, which no constructor has made
)

// A Set holds the refusals of one limit. It is made by [New]. All methods may be called concurrently.
type Set struct {
	Policy, Reason string // as in spillway.Rejection

	over               bool
	unknown            spillway.Rejection // without a time to retry
	tooLarge, negative spillway.Rejection
	steps              roundup.Steps[spillway.Rejection]
}

// New returns the refusals of a limit. If over is true, the caller has used up its quota.
func New(policy, reason string, over bool) *Set {
	s := &Set{Policy: policy, Reason: reason, over: over}
	s.unknown, s.tooLarge, s.negative = s.Build(reason, 0), s.Build(TooLarge, 0), s.Build(Negative, 0)
	return s
}

// Build returns a new refusal for some reason.
func (s *Set) Build(reason string, retryAfter time.Duration) spillway.Rejection {
	return spillway.Rejection{
		Policy: s.Policy, Reason: reason, RetryAfter: retryAfter, OverQuota: s.over, TooLate: reason == Deadline,
	}
}

// Cost returns the refusal of a cost that can never pass.
func (s *Set) Cost(n int64) *spillway.Rejection {
	if n < 0 {
		return &s.negative
	}
	return &s.tooLarge
}

// Unknown returns the refusal without a time to retry.
func (s *Set) Unknown() *spillway.Rejection { return &s.unknown }

// After returns the refusal of a request that should be tried again after wait. If wait is not positive, the time is
// unknown.
func (s *Set) After(wait time.Duration) *spillway.Rejection {
	if wait <= 0 {
		return &s.unknown
	}
	cell, told := s.steps.At(wait)
	if rej := cell.Load(); rej != nil {
		return rej
	}
	rej := s.Build(s.Reason, told)
	cell.CompareAndSwap(nil, &rej)
	return cell.Load()
}
