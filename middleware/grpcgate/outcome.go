package grpcgate

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
)

// DefaultOutcome returns how a call went that ended with err, on a server as on a client:
//
//   - Success if err is nil,
//   - Ignored if err is a refusal by another gate on the way: a local rejection is nobody's failure,
//   - Failure for DEADLINE_EXCEEDED, UNAVAILABLE, INTERNAL, UNKNOWN and DATA_LOSS, and for an error that is no status,
//   - Dropped for RESOURCE_EXHAUSTED,
//   - Ignored for CANCELLED,
//   - Success for any other code: those are about the request.
//
// An error that wraps a status counts as that status, and context.Canceled and context.DeadlineExceeded as the codes that
// gRPC makes of them.
func DefaultOutcome(err error) spillway.Outcome {
	if err == nil {
		return spillway.Success
	}
	if errors.Is(err, spillway.ErrRejected) {
		return spillway.Ignored
	}
	switch codeOf(err) {
	case codes.DeadlineExceeded, codes.Unavailable, codes.Internal, codes.Unknown, codes.DataLoss:
		return spillway.Failure
	case codes.ResourceExhausted:
		return spillway.Dropped
	case codes.Canceled:
		return spillway.Ignored
	}
	return spillway.Success
}

// codeOf returns the code with which err reaches the other side.
func codeOf(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}

// deadlineSlack is how long before the deadline of a call a cancellation counts as the deadline: the client's timer goes
// off first, and what the server sees of it is a cancellation.
const deadlineSlack = 5 * time.Millisecond

// deadlinePassed reports whether ctx has ended because of its deadline.
func deadlinePassed(ctx context.Context) bool {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return true
	}
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) <= deadlineSlack
}

// hurried reports whether a call that was admitted at arrived had less than chance until its deadline.
func hurried(ctx context.Context, arrived time.Time, chance time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && deadline.Sub(arrived) < chance
}
