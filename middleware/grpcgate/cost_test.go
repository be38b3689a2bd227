package grpcgate_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

// admitter is a Policy that admits everything and remembers nothing.
type admitter struct{}

func (admitter) Admit(context.Context, spillway.Request) (spillway.Ticket, error) { return 0, nil }
func (admitter) Done(spillway.Request, spillway.Ticket, spillway.Result)          {}

// refuser is a Policy that refuses everything and remembers nothing.
type refuser struct{}

func (refuser) Admit(context.Context, spillway.Request) (spillway.Ticket, error) { return 0, errFull }
func (refuser) Done(spillway.Request, spillway.Ticket, spillway.Result)          {}

// servers are, side by side, what is to be compared.
func servers(t testing.TB) []namedServer {
	t.Helper()
	open, shut := gated(t, nil, admitter{}), gated(t, nil, refuser{})
	return []namedServer{
		{"bare", nil},
		{"admitted", behind(open)},
		{"admitted by tap too", append(behind(open), grpc.InTapHandle(open.Tap))},
		{"refused", behind(shut)},
		{"refused by tap", append(behind(shut), grpc.InTapHandle(shut.Tap))},
	}
}

type namedServer struct {
	name string
	o    []grpc.ServerOption
}

// BenchmarkServer is one unary call of an empty handler through a whole gRPC server, whose client costs nothing.
func BenchmarkServer(b *testing.B) {
	message, err := proto.Marshal(wrapperspb.String("hello"))
	require.NoError(b, err)
	for _, c := range servers(b) {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			srv := grpc.NewServer(c.o...)
			srv.RegisterService(&serviceDesc, &service{})
			client := newRawClient(echoMethod, message, b.N, 16)
			b.ResetTimer()
			go func() { _ = srv.Serve(listen(client)) }()
			<-client.closed
			b.StopTimer()
			srv.Stop()
		})
	}
}

// BenchmarkUnary is one unary call through client and server in memory.
func BenchmarkUnary(b *testing.B) {
	for _, c := range servers(b) {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			conn := start(b, false, &service{}, c.o, nil)
			in := wrapperspb.String("hello")
			var out wrapperspb.StringValue
			ctx := context.Background()
			for b.Loop() {
				_ = conn.Invoke(ctx, echoMethod, in, &out)
			}
		})
	}
}

// BenchmarkInterceptor is what the gate adds, without a server, serial and parallel.
func BenchmarkInterceptor(b *testing.B) {
	info := &grpc.UnaryServerInfo{FullMethod: echoMethod}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	for _, c := range []struct {
		name string
		call func(context.Context)
	}{
		{"admitted", unaryOf(gated(b, nil, admitter{}), info, handler)},
		{"admitted late or not", unaryOf(gated(b, &grpcgate.Options{AdmitLate: true}, admitter{}), info, handler)},
		{"refused", unaryOf(gated(b, nil, refuser{}), info, handler)},
		{"tap admits", tapOf(gated(b, nil, admitter{}))},
		{"tap refuses", tapOf(gated(b, nil, refuser{}))},
	} {
		b.Run(c.name+"/serial", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.call(context.Background())
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					c.call(context.Background())
				}
			})
		})
	}
}

func unaryOf(s *grpcgate.Server, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) func(context.Context) {
	return func(ctx context.Context) { _, _ = s.Unary(ctx, nil, info, handler) }
}

func tapOf(s *grpcgate.Server) func(context.Context) {
	info := &tap.Info{FullMethodName: echoMethod}
	return func(ctx context.Context) { _, _ = s.Tap(ctx, info) }
}
