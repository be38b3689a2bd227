package limiter

import (
	"context"
	"fmt"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/rejections"
)

// The reasons of the rejections in this package, fit for metric labels.
const (
	ReasonRate     = "rate exceeded"       // a bucket is empty, or a warm-up does not go faster yet
	ReasonQuota    = "quota used up"       // a window is full
	ReasonLimit    = "limit reached"       // as many as may run at once do
	ReasonFull     = "queue full"          // as many as may wait do
	ReasonWait     = "wait too long"       // it would wait, or has waited, longer than it may
	ReasonDeadline = "deadline too near"   // its turn would come after the deadline of its context
	ReasonOusted   = "ousted from queue"   // it waited, and gave its place to a request of higher priority
	ReasonTooLarge = rejections.TooLarge   // it costs more than can ever pass
	ReasonNegative = rejections.Negative   // tokens are not minted that way
	ReasonZero     = "limiter is not made" // it is the zero value instead of what the constructor returns
)

// A tooLateError is a refusal because of the deadline of a context. It matches that too, and costs no allocation.
type tooLateError struct{ *spillway.Rejection }

// Is reports whether target is [context.DeadlineExceeded] or what the Rejection is.
func (e tooLateError) Is(target error) bool {
	return target == context.DeadlineExceeded || e.Rejection.Is(target)
}

// Unwrap returns the Rejection.
func (e tooLateError) Unwrap() error { return e.Rejection }

// forDeadline returns err, which matches [context.DeadlineExceeded] too if it refuses for now and ctx has a deadline.
func forDeadline(ctx context.Context, err error) error {
	rej, ok := err.(*spillway.Rejection) //nolint:errorlint // not wrapped, or it could never pass
	if _, bounded := ctx.Deadline(); !ok || !bounded || rej.Reason == ReasonZero {
		return err
	}
	return tooLateError{rej}
}

// A CostError tells that a call can never pass, however long it waits: it asks for more tokens than the limit ever gives
// at once, or for a negative number. It wraps the [spillway.Rejection] that a [spillway.Gate] would return, so it matches
// [spillway.ErrRejected] too.
type CostError struct {
	Limit     string // name of the limit
	Cost      int    // asked for
	Max       int    // greatest that can pass
	rejection *spillway.Rejection
}

// Error returns a text such as "limiter: token bucket: cost 30 exceeds what can ever pass, 20".
func (e *CostError) Error() string {
	if e.Cost < 0 {
		return fmt.Sprintf("limiter: %s: cost must not be negative, got %d", e.Limit, e.Cost)
	}
	return fmt.Sprintf("limiter: %s: cost %d exceeds what can ever pass, %d", e.Limit, e.Cost, e.Max)
}

// Unwrap returns the rejection.
func (e *CostError) Unwrap() error { return e.rejection }

// costOf returns what r consumes: at least 1, or a negative number that no limit accepts.
func costOf(r *spillway.Request) int64 {
	if r.Cost == 0 {
		return 1
	}
	return int64(r.Cost)
}
