package main

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

const itemMethod = "/shop.Shop/Item"

// newRPC returns a server of the service shop.Shop behind the same gate.
func (s *shop) newRPC() *grpc.Server {
	gated := spillway.Must(grpcgate.NewServer(s.gate, &grpcgate.Options{
		Request: func(ctx context.Context, _ string) spillway.Request {
			var tenant string
			if values := metadata.ValueFromIncomingContext(ctx, "x-tenant"); len(values) == 1 {
				tenant = values[0]
			}
			return spillway.Request{Key: tenant, Timeout: patience}
		},
	}))
	server := grpc.NewServer(
		grpc.UnaryInterceptor(gated.Unary),
		grpc.StreamInterceptor(gated.Stream),
		grpc.InTapHandle(gated.Tap), // refuses before the message is read
	)
	server.RegisterService(&grpc.ServiceDesc{ // what the protocol compiler would generate
		ServiceName: "shop.Shop",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Item", Handler: s.item}},
	}, s)
	return server
}

// item answers a call with the name of an item.
//
//nolint:revive // the order of the arguments is that of grpc.MethodDesc
func (s *shop) item(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	var in wrapperspb.StringValue
	if err := decode(&in); err != nil {
		return nil, err
	}
	handle := func(ctx context.Context, _ any) (any, error) {
		name, err := s.store.item(ctx, in.GetValue())
		if errors.Is(err, errNoItem) {
			return nil, status.Error(codes.NotFound, err.Error())
		} else if err != nil {
			return nil, err
		}
		return wrapperspb.String(name), nil
	}
	return interceptor(ctx, &in, &grpc.UnaryServerInfo{Server: s, FullMethod: itemMethod}, handle)
}
