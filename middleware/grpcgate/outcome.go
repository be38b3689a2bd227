package grpcgate

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
)

// DefaultOutcome returns how a call went on a server whose handler returned err:
//
//   - Success if err is nil,
//   - Ignored if err is a refusal by another gate on the way: a local rejection is not a failure,
//   - Ignored if gRPC could not send or receive a message because of what is in it, or of its size,
//   - Failure for DEADLINE_EXCEEDED, UNAVAILABLE, INTERNAL, UNKNOWN and DATA_LOSS, for a code that gRPC does not
//     define and for an error that is no status,
//   - Dropped for RESOURCE_EXHAUSTED,
//   - Ignored for any other code: how fast a bad request is turned down says nothing about the service.
//
// An error that wraps a status counts as that status, and context.Canceled and context.DeadlineExceeded as the codes that
// gRPC makes of them.
func DefaultOutcome(err error) spillway.Outcome {
	return outcomeOf(err, spillway.Ignored)
}

// DefaultClientOutcome returns how a call of a client went that ended with err. It is [DefaultOutcome], but a code that is
// about the request, such as NOT_FOUND, is a Success: the server is alive. CANCELLED remains Ignored.
func DefaultClientOutcome(err error) spillway.Outcome {
	return outcomeOf(err, spillway.Success)
}

// outcomeOf returns the outcome of a call that ended with err, which is badRequest for a code that is about the request.
func outcomeOf(err error, badRequest spillway.Outcome) spillway.Outcome {
	if err == nil {
		return spillway.Success
	}
	if errors.Is(err, spillway.ErrRejected) {
		return spillway.Ignored
	}
	switch code := codeOf(err); code {
	case codes.DeadlineExceeded, codes.Unavailable, codes.Unknown, codes.DataLoss:
		return spillway.Failure
	case codes.Internal:
		return unlessUnsendable(err, spillway.Failure)
	case codes.ResourceExhausted:
		return unlessUnsendable(err, spillway.Dropped)
	case codes.OK:
		return spillway.Success
	case codes.Canceled:
		return spillway.Ignored
	default:
		if code > codes.Unauthenticated {
			return spillway.Failure
		}
	}
	return badRequest
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
	if ctx.Err() == nil {
		return false
	}
	deadline, ok := ctx.Deadline() // it has passed if that is how ctx ended
	return !ok || time.Until(deadline) > max(deadlineSlack, deadline.Sub(arrived)/slackShare)
}
