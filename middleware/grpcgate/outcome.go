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
//   - Failure for DEADLINE_EXCEEDED, UNAVAILABLE, INTERNAL, UNKNOWN and DATA_LOSS, for a code that gRPC does not
//     define and for an error that is no status,
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
	switch code := codeOf(err); code {
	case codes.DeadlineExceeded, codes.Unavailable, codes.Internal, codes.Unknown, codes.DataLoss:
		return spillway.Failure
	case codes.ResourceExhausted:
		return spillway.Dropped
	case codes.Canceled:
		return spillway.Ignored
	default:
		if code > codes.Unauthenticated {
			return spillway.Failure
		}
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

// A cancellation counts as the deadline if it comes at most so long before it: deadlineSlack, or a twentieth of the time
// that the call had. The client's timer goes off first, and what the server sees of that is a cancellation.
const (
	deadlineSlack = 5 * time.Millisecond
	slackShare    = 20
)

// clientGone reports whether ctx has ended, and not because of its deadline.
func clientGone(ctx context.Context, arrived time.Time) bool {
	if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return false
	}
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > max(deadlineSlack, deadline.Sub(arrived)/slackShare)
}

// hurried reports whether a call that was admitted at arrived had less than chance until its deadline.
func hurried(ctx context.Context, arrived time.Time, chance time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && deadline.Sub(arrived) < chance
}
