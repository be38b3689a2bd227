package grpcgate_test

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/grpcgate"
	"github.com/spillway-go/spillway/shedder"
)

func Example() {
	gate := spillway.New(spillway.Must(shedder.New(nil)))
	s := spillway.Must(grpcgate.NewServer(gate, nil))
	server := grpc.NewServer(
		grpc.UnaryInterceptor(s.Unary),
		grpc.StreamInterceptor(s.Stream),
		grpc.InTapHandle(s.Tap), // refuses before the message is read
	)
	defer server.Stop()
	fmt.Println(len(server.GetServiceInfo()), "services so far")
	// Output: 0 services so far
}

// A client with a breaker for each target.
func ExampleNewClient() {
	breakers := spillway.Must(breaker.NewKeyed(nil))
	c := spillway.Must(grpcgate.NewClient(spillway.New(breakers), nil))
	invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		return status.Error(codes.Unavailable, "server is down") // in place of a connection
	}
	conn, err := grpc.NewClient("dns:///orders:443", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	for i := range 12 {
		err := c.Unary(context.Background(), "/shop.Orders/Place", nil, nil, conn, invoke)
		if i == 0 || errors.Is(err, spillway.ErrRejected) {
			fmt.Println(i, errors.Is(err, spillway.ErrRejected), status.Code(err))
		}
	}
	// Output:
	// 0 false Unavailable
	// 10 true Unavailable
	// 11 true Unavailable
}

// Tenants have shares of their own, and what users wait for goes first. The metadata counts because Request reads it; it
// should have been set by a proxy of one's own.
func ExampleOptions() {
	o := &grpcgate.Options{
		Request: func(ctx context.Context, method string) spillway.Request {
			var r spillway.Request
			if tenant := metadata.ValueFromIncomingContext(ctx, "x-tenant"); len(tenant) == 1 {
				r.Key = tenant[0]
			}
			if method == "/shop.Orders/Place" {
				r.Priority = spillway.Critical
			}
			return r
		},
	}
	limit := spillway.Must(limiter.New(limiter.Concurrency{Limit: 10}))
	_, err := grpcgate.NewServer(spillway.New(limit), o)
	fmt.Println(err)
	// Output: <nil>
}

// A tap that refuses says the same as the interceptor.
func ExampleServer_Tap() {
	limit := spillway.Must(limiter.New(limiter.Concurrency{Limit: 1}))
	gate := spillway.New(limit)
	s := spillway.Must(grpcgate.NewServer(gate, nil))
	permit, err := gate.Enter(context.Background(), spillway.Request{})
	if err != nil {
		panic(err)
	}
	_, err = s.Tap(context.Background(), &tap.Info{FullMethodName: "/shop.Orders/Place"})
	fmt.Println(err)
	permit.Done(spillway.Success)
	_, err = s.Tap(context.Background(), &tap.Info{FullMethodName: "/shop.Orders/Place"})
	fmt.Println(err)
	// Output:
	// rpc error: code = ResourceExhausted desc = server has no capacity for this call now
	// <nil>
}

func ExampleDefaultOutcome() {
	for _, err := range []error{
		nil,
		status.Error(codes.NotFound, "no such order"),
		status.Error(codes.Unavailable, "broken"),
		fmt.Errorf("wrapped: %w", status.Error(codes.ResourceExhausted, "overloaded")),
		context.Canceled,
	} {
		fmt.Println(grpcgate.DefaultOutcome(err))
	}
	// Output:
	// success
	// ignored
	// failure
	// dropped
	// ignored
}

// An answer about the request tells a client that the server is alive. A message that is too large for the server is the
// caller's own.
func ExampleDefaultClientOutcome() {
	fmt.Println(grpcgate.DefaultClientOutcome(status.Error(codes.NotFound, "no such order")))
	fmt.Println(grpcgate.DefaultClientOutcome(status.Error(codes.ResourceExhausted, "overloaded")))
	tooLarge := status.Error(codes.ResourceExhausted, "grpc: received message larger than max (5000000 vs. 4194304)")
	fmt.Println(grpcgate.DefaultClientOutcome(tooLarge))
	// Output:
	// success
	// dropped
	// ignored
}
