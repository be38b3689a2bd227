package spillway

import (
	"context"
	"errors"
	"time"
)

// ErrRejected matches every refusal by a [Policy]: errors.Is(err, ErrRejected). [RejectionOf]
// returns the policy that refused, the reason, and the time to try again.
var ErrRejected = errors.New("spillway: rejected")

// A Rejection is the error of a [Policy] that refuses a request. It is shared between requests and never modified: a Policy
// makes it beforehand, and publishes a new one when its fields change.
type Rejection struct {
	// Policy is the name of the policy that refused. It is the Name from its options or rule, or by default its kind,
	// such as "shedder".
	Policy string
	// Reason is a constant such as "limit reached", fit for a metric label.
	Reason string
	// RetryAfter is when a new attempt makes sense, or 0 if that is unknown.
	RetryAfter time.Duration
	// OverQuota is true if the caller used up its own quota (HTTP 429), and false if the service lacks room (HTTP 503).
	OverQuota bool
	// TooLate is true if the request had too little time left, so that another attempt with the same deadline is
	// useless. The Rejection then matches [context.DeadlineExceeded] too.
	TooLate bool
}

// RejectionOf returns err as a *[Rejection], or the one that err wraps, or nil if there is none. It does not allocate
// if err itself is a Rejection.
func RejectionOf(err error) *Rejection {
	if rej, ok := err.(*Rejection); ok { //nolint:errorlint // the common case: errors.As would allocate
		return rej
	}
	var rej *Rejection
	errors.As(err, &rej)
	return rej
}

// Error returns "spillway: shedder refused: limit reached".
func (r *Rejection) Error() string { return "spillway: " + r.Policy + " refused: " + r.Reason }

// Is reports whether target is [ErrRejected], so that errors.Is(err, ErrRejected) holds for every Rejection, or
// [context.DeadlineExceeded] if r is TooLate.
func (r *Rejection) Is(target error) bool {
	return target == ErrRejected || r.TooLate && target == context.DeadlineExceeded
}
