package grpcgate

import (
	"context"

	"google.golang.org/grpc/tap"
)

// Tap is a tap.ServerInHandle: it runs when the header of a call has come, before the message is read and decoded. It
// refuses calls that the interceptor would refuse now, with the same status. It holds no permit, because a call may end
// unnoticed between the tap and its handler. So the interceptors are needed too.
//
// A refusal here cannot have a trailer. It asks for a delay only in its RetryInfo, which clients of grpc-go do not
// obey. They retry after their own backoff, if their retry policy says so.
//
// gRPC runs the taps of one connection one after the other, so [Options.Request] must not block. Taps are an experimental
// feature of grpc-go, and calls refused by a tap are not seen by its stats handlers.
func (s *Server) Tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	method := info.FullMethodName
	if s.o.Exempt(method) {
		return ctx, nil
	}
	r := s.o.Request(ctx, method)
	if r.Route == "" {
		if s.took.of.Known(method) { // otherwise the client may have invented it
			r.Route = method
		}
	}
	if err := s.gate.Peek(ctx, r); err != nil && ctx.Err() == nil {
		s.tapped.Add(1)
		_, refused := s.refusalOf(err)
		return ctx, refused
	}
	return ctx, nil
}
