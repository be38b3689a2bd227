package limiter

import (
	"context"
	"fmt"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/rejections"
)

// A tooLateError is a refusal caused by the deadline of a context. It also matches context.DeadlineExceeded, and does
// not allocate.
type tooLateError struct{ *spillway.Rejection }

// Is reports whether target is [context.DeadlineExceeded] or matches the Rejection.
func (e tooLateError) Is(target error) bool {
	return target == context.DeadlineExceeded || e.Rejection.Is(target)
}

// Unwrap returns the Rejection.
func (e tooLateError) Unwrap() error { return e.Rejection }

// forDeadline returns err. If err is a refusal for now and ctx has a deadline, the result also matches
// [context.DeadlineExceeded].
func forDeadline(ctx context.Context, err error) error {
	rej, ok := err.(*spillway.Rejection) //nolint:errorlint // not wrapped, or it could never pass
	if _, bounded := ctx.Deadline(); !ok || !bounded || rej.Reason == rejections.NotMade {
		return err
	}
	return tooLateError{rej}
}

// A CostError says that a call can never pass, however long it waits. The call asks for more tokens than the limit ever
// gives at once, or for a negative number. It wraps the [spillway.Rejection] that a [spillway.Gate] would return, so it
// matches [spillway.ErrRejected] too.
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

// costOf returns the cost of r: at least 1, or a negative number that no limit accepts.
func costOf(r *spillway.Request) int64 {
	if r.Cost == 0 {
		return 1
	}
	return int64(r.Cost)
}
