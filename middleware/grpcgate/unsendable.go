package grpcgate

import (
	"errors"

	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/grpctext"
)

// unlessUnsendable returns Ignored if err says that a message or the metadata of a call could not be sent, received or
// read because of its content or size, and otherwise the argument else. gRPC has no code for this: it uses INTERNAL,
// like for a bug, or RESOURCE_EXHAUSTED, like for an overload, so the text of the error decides. Otherwise a caller
// that chooses the content could open breakers for all callers.
func unlessUnsendable(err error, otherwise spillway.Outcome) spillway.Outcome {
	var own interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &own) {
		return otherwise
	}
	if grpctext.Unsendable(own.GRPCStatus().Message()) {
		return spillway.Ignored
	}
	return otherwise
}
