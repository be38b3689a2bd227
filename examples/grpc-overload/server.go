package main

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/lab/overload"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/grpcgate"
	"github.com/spillway-go/spillway/shedder"
)

// The methods of the service.
const (
	serviceName  = "overload.Overload"
	unaryMethod  = "/" + serviceName + "/Work"
	streamMethod = "/" + serviceName + "/WorkInParts"
	parts        = 3 // messages of a stream
)

// server is a gRPC server behind a guard.
type server struct {
	grpc *grpc.Server
	view overload.StatsFunc // nil if the guard has nothing to show
}

func newServer(guard string, s *overload.Service) (*server, error) {
	gate, view, err := newGate(guard)
	if err != nil {
		return nil, err
	}
	// The tap is outermost, so it counts each call as soon as the server knows of it.
	inTap := func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		s.Arrive()
		return ctx, nil
	}
	var options []grpc.ServerOption
	if gate != nil {
		gated, err := protect(gate)
		if err != nil {
			return nil, err
		}
		options = []grpc.ServerOption{grpc.UnaryInterceptor(gated.Unary), grpc.StreamInterceptor(gated.Stream)}
		if guard == "spillway" {
			inTap = func(ctx context.Context, info *tap.Info) (context.Context, error) {
				s.Arrive()
				return gated.Tap(ctx, info)
			}
		}
	}
	srv := grpc.NewServer(append(options, grpc.InTapHandle(inTap))...)
	srv.RegisterService(&serviceDesc, s)
	return &server{grpc: srv, view: view}, nil
}

// protect is grpcgate as used by a service whose streams are work.
func protect(gate *spillway.Gate) (*grpcgate.Server, error) {
	return grpcgate.NewServer(gate, &grpcgate.Options{
		Stream: func(string) grpcgate.StreamMode { return grpcgate.WholeStream },
	})
}

// newGate returns the gate of a guard, or nil for none.
func newGate(guard string) (*spillway.Gate, overload.StatsFunc, error) {
	if guard == "none" {
		return nil, nil, nil
	}
	if limit, ok := overload.FixedLimit(guard); ok {
		fixed, err := limiter.New(limiter.Concurrency{Limit: limit})
		if err != nil {
			return nil, nil, err
		}
		return spillway.New(fixed), nil, nil
	}
	if guard != "spillway" && guard != "interceptors" {
		return nil, nil, fmt.Errorf("grpc-overload: no guard %q", guard)
	}
	shed, err := shedder.New(nil)
	if err != nil {
		return nil, nil, err
	}
	gate := spillway.New(shed)
	return gate, func() overload.View { return overload.Shedding(gate, shed) }, nil
}

func (s *server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

func (s *server) View() overload.View {
	if s.view == nil {
		return overload.View{}
	}
	return s.view()
}

// serviceDesc stands for what the protocol compiler would generate.
var serviceDesc = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Work", Handler: workHandler}},
	Streams:     []grpc.StreamDesc{{StreamName: "WorkInParts", Handler: streamHandler, ServerStreams: true}},
}

//nolint:revive // the order of the arguments is that of grpc.MethodDesc
func workHandler(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	var in emptypb.Empty
	if err := decode(&in); err != nil {
		return nil, err
	}
	work := func(context.Context, any) (any, error) {
		srv.(*overload.Service).Work() //nolint:forcetypeassert // what newServer registered
		return &emptypb.Empty{}, nil
	}
	if interceptor == nil {
		return work(ctx, &in)
	}
	return interceptor(ctx, &in, &grpc.UnaryServerInfo{Server: srv, FullMethod: unaryMethod}, work)
}

func streamHandler(srv any, stream grpc.ServerStream) error {
	var in emptypb.Empty
	if err := stream.RecvMsg(&in); err != nil {
		return err
	}
	srv.(*overload.Service).Work() //nolint:forcetypeassert // what newServer registered
	for range parts {
		if err := stream.SendMsg(&emptypb.Empty{}); err != nil {
			return err
		}
	}
	return nil
}
