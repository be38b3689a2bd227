package grpcgate_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

// awaitOutcomes waits until p has seen calls end with these outcomes: a server ends a call before or after its client
// hears of it.
func awaitOutcomes(t *testing.T, p *gatetest.Recorder, want ...spillway.Outcome) {
	t.Helper()
	require.Eventually(t, func() bool { return len(p.Outcomes()) >= len(want) }, 10*time.Second, time.Millisecond)
	require.Equal(t, want, p.Outcomes())
	require.Zero(t, p.InFlight())
}

var (
	errFull      = &spillway.Rejection{Policy: "fake", Reason: "full", RetryAfter: 200 * time.Millisecond}
	errOverQuota = &spillway.Rejection{Policy: "fake", Reason: "over quota", RetryAfter: time.Minute, OverQuota: true}
)

// The methods of the service of the tests, whose messages are strings.
const (
	echoMethod = "/test.Test/Echo" // unary
	downMethod = "/test.Test/Down" // the server streams
	upMethod   = "/test.Test/Up"   // the client streams
	chatMethod = "/test.Test/Chat" // both do
)

// A service is what its functions do. A nil function echoes.
type service struct {
	echo func(context.Context, string) (string, error)
	down func(string, grpc.ServerStream) error
	up   func(grpc.ServerStream) error
	chat func(grpc.ServerStream) error
}

func receive(s interface{ RecvMsg(any) error }) (string, error) {
	var m wrapperspb.StringValue
	err := s.RecvMsg(&m)
	return m.GetValue(), err
}

func send(s interface{ SendMsg(any) error }, text string) error {
	return s.SendMsg(wrapperspb.String(text))
}

func (s *service) runDown(stream grpc.ServerStream) error {
	text, err := receive(stream)
	if err != nil {
		return err
	}
	if s.down != nil {
		return s.down(text, stream)
	}
	for range 3 {
		if err := send(stream, text); err != nil {
			return err
		}
	}
	return nil
}

func (s *service) runUp(stream grpc.ServerStream) error {
	if s.up != nil {
		return s.up(stream)
	}
	all := ""
	for {
		text, err := receive(stream)
		if err == io.EOF {
			return send(stream, all)
		}
		if err != nil {
			return err
		}
		all += text
	}
}

func (s *service) runChat(stream grpc.ServerStream) error {
	if s.chat != nil {
		return s.chat(stream)
	}
	for {
		text, err := receive(stream)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := send(stream, text); err != nil {
			return err
		}
	}
}

func (s *service) runEcho(ctx context.Context, req any) (any, error) {
	text := req.(*wrapperspb.StringValue).GetValue()
	if s.echo == nil {
		return wrapperspb.String(text), nil
	}
	answer, err := s.echo(ctx, text)
	return wrapperspb.String(answer), err
}

var serviceDesc = grpc.ServiceDesc{
	ServiceName: "test.Test",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: func(
		srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
	) (any, error) {
		m := new(wrapperspb.StringValue)
		if err := decode(m); err != nil {
			return nil, err
		}
		run := srv.(*service).runEcho
		if interceptor == nil {
			return run(ctx, m)
		}
		return interceptor(ctx, m, &grpc.UnaryServerInfo{Server: srv, FullMethod: echoMethod}, run)
	}}},
	Streams: []grpc.StreamDesc{
		{StreamName: "Down", ServerStreams: true, Handler: func(srv any, s grpc.ServerStream) error { return srv.(*service).runDown(s) }},
		{StreamName: "Up", ClientStreams: true, Handler: func(srv any, s grpc.ServerStream) error { return srv.(*service).runUp(s) }},
		{
			StreamName: "Chat", ServerStreams: true, ClientStreams: true,
			Handler: func(srv any, s grpc.ServerStream) error { return srv.(*service).runChat(s) },
		},
	},
}

// gated returns a Server in front of policies.
func gated(t testing.TB, o *grpcgate.Options, policies ...spillway.Policy) *grpcgate.Server {
	t.Helper()
	s, err := grpcgate.NewServer(spillway.New(policies...), o)
	require.NoError(t, err)
	return s
}

func behind(s *grpcgate.Server) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.UnaryInterceptor(s.Unary), grpc.StreamInterceptor(s.Stream)}
}

// start serves svc, over TCP or in memory, and returns a connection to it. more may register further services.
func start(t testing.TB, tcp bool, svc *service, server []grpc.ServerOption, client []grpc.DialOption, more ...func(*grpc.Server)) *grpc.ClientConn {
	t.Helper()
	srv := grpc.NewServer(server...)
	srv.RegisterService(&serviceDesc, svc)
	for _, register := range more {
		register(srv)
	}
	target := "passthrough:///memory"
	var l net.Listener
	if tcp {
		var err error
		l, err = net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		target = l.Addr().String()
	} else {
		memory := bufconn.Listen(1 << 20)
		l = memory
		client = append(client, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return memory.DialContext(ctx) }))
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	conn, err := grpc.NewClient(target, append(client, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		srv.Stop()
		if err := <-served; !errors.Is(err, grpc.ErrServerStopped) { // a test that ends at once stops it before it serves
			require.NoError(t, err)
		}
	})
	return conn
}

// echo calls the unary method.
func echo(ctx context.Context, conn *grpc.ClientConn, text string, opts ...grpc.CallOption) (string, error) {
	var out wrapperspb.StringValue
	err := conn.Invoke(ctx, echoMethod, wrapperspb.String(text), &out, opts...)
	return out.GetValue(), err
}

func openStream(ctx context.Context, conn *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	for i := range serviceDesc.Streams {
		if desc := &serviceDesc.Streams[i]; "/test.Test/"+desc.StreamName == method {
			return conn.NewStream(ctx, desc, method, opts...)
		}
	}
	panic("no stream " + method)
}

// bothWays runs the test over TCP and in memory.
func bothWays(t *testing.T, test func(t *testing.T, tcp bool)) {
	t.Helper()
	t.Run("tcp", func(t *testing.T) { test(t, true) })
	t.Run("memory", func(t *testing.T) { test(t, false) })
}
