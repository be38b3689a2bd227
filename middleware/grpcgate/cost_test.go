package grpcgate_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/deadline"
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
		{"admitted unless late", unaryOf(gated(b, nil, spillway.Must(deadline.New(nil)), admitter{}), info, handler)},
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

func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	info := &grpc.UnaryServerInfo{FullMethod: echoMethod}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	open, shut := gated(t, nil, admitter{}, admitter{}, admitter{}, admitter{}), gated(t, nil, refuser{})
	client := gatedClient(t, nil, admitter{}, admitter{}, admitter{}, admitter{})
	shutClient, connection := gatedClient(t, nil, refuser{}), conn(t)
	ctx := context.Background()
	later, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	invoker := invoke(func(context.Context) error { return nil })
	for name, c := range map[string]struct {
		call func()
		want float64
	}{
		"admitted":                     {func() { unaryOf(open, info, handler)(ctx) }, 0},
		"admitted with a deadline":     {func() { unaryOf(open, info, handler)(later) }, 0},
		"admitted by the tap":          {func() { _, _ = open.Tap(later, &tapInfo) }, 0},
		"refused by the tap":           {func() { _, _ = shut.Tap(later, &tapInfo) }, 1},
		"admitted by the client":       {func() { _ = client.Unary(ctx, echoMethod, nil, nil, connection, invoker) }, 0},
		"refused by the client":        {func() { _ = shutClient.Unary(ctx, echoMethod, nil, nil, connection, invoker) }, 1},
		"refused, without a transport": {func() { unaryOf(shut, info, handler)(ctx) }, 5},
	} {
		c.call() // the first prepares what the others share
		require.LessOrEqual(t, testing.AllocsPerRun(1000, c.call), c.want, name)
	}
}

// What the gate adds to a call, in allocations: at most two, of which one is the closure of the generated code.
func TestAllocationsOfACall(t *testing.T) {
	if raceEnabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	allocs := func(o []grpc.ServerOption, dial []grpc.DialOption) float64 {
		connection := start(t, false, &service{}, o, dial)
		in, out := wrapperspb.String("hello"), &wrapperspb.StringValue{}
		return testing.AllocsPerRun(2000, func() { _ = connection.Invoke(context.Background(), echoMethod, in, out) })
	}
	bare := allocs(nil, nil)
	require.LessOrEqual(t, allocs(behind(gated(t, nil, admitter{})), nil)-bare, 2.0, "server")
	require.LessOrEqual(t, allocs(nil, through(gatedClient(t, nil, admitter{})))-bare, 2.0, "client")
}

var tapInfo = tap.Info{FullMethodName: echoMethod}
