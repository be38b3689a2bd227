package grpcgate_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

func TestAdmittedCallRunsAsWithoutTheGate(t *testing.T) {
	bothWays(t, func(t *testing.T, tcp bool) {
		p := &gatetest.Recorder{}
		s := gated(t, nil, p)
		conn := start(t, tcp, &service{}, append(behind(s), grpc.InTapHandle(s.Tap)), nil)
		answer, err := echo(context.Background(), conn, "hello")
		require.NoError(t, err)
		require.Equal(t, "hello", answer)
		awaitOutcomes(t, p, spillway.Refused, spillway.Success) // the tap has looked, and given back
	})
}

func TestHealthIsExempt(t *testing.T) {
	bothWays(t, func(t *testing.T, tcp bool) {
		s := gated(t, nil, refuser{})
		register := func(srv *grpc.Server) { healthpb.RegisterHealthServer(srv, health.NewServer()) }
		conn := start(t, tcp, &service{}, append(behind(s), grpc.InTapHandle(s.Tap)), nil, register)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		require.Equal(t, healthpb.HealthCheckResponse_SERVING, answer.GetStatus())
		watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		_, err = watch.Recv()
		require.NoError(t, err)
		require.Equal(t, grpcgate.Stats{Exempt: 2, ExemptStreams: 1}, s.Stats())
		_, err = echo(ctx, conn, "hello")
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
	})
}

func TestDefaultExempt(t *testing.T) {
	for method, want := range map[string]bool{
		"/grpc.health.v1.Health/Check":                                   true,
		"/grpc.health.v1.Health/Watch":                                   true,
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      true,
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": true,
		"/grpc.health.v1.HealthX/Check":                                  false,
		"/grpc.channelz.v1.Channelz/GetServers":                          false,
		"/test.Test/grpc.health.v1.Health/Check":                         false,
		"":                                                               false,
	} {
		require.Equal(t, want, grpcgate.DefaultExempt(method), method)
	}
}

func TestWhatIsTrusted(t *testing.T) {
	secret := metadata.AppendToOutgoingContext(context.Background(), "tenant", "acme", "priority", "critical", "key", "k", "cost", "0")
	p := &gatetest.Recorder{}
	s := gated(t, nil, p)
	conn := start(t, false, &service{}, append(behind(s), grpc.InTapHandle(s.Tap)), nil)
	_, err := echo(secret, conn, "hello")
	require.NoError(t, err)
	for _, r := range p.Requests() {
		r.Arrived, r.Route = time.Time{}, ""
		require.Equal(t, spillway.Request{}, r, "nothing in the metadata counts unless it is named")
	}
	require.Len(t, p.Requests(), 2)

	p = &gatetest.Recorder{}
	s = gated(t, &grpcgate.Options{Request: func(ctx context.Context, method string) spillway.Request {
		from, ok := peer.FromContext(ctx)
		assert.True(t, ok)
		assert.NotEmpty(t, from.Addr.String())
		assert.Equal(t, echoMethod, method)
		return spillway.Request{Key: metadata.ValueFromIncomingContext(ctx, "tenant")[0], Priority: spillway.Critical, Cost: 3}
	}}, p)
	conn = start(t, true, &service{}, append(behind(s), grpc.InTapHandle(s.Tap)), nil)
	_, err = echo(secret, conn, "hello")
	require.NoError(t, err)
	require.Len(t, p.Requests(), 2)
	for _, r := range p.Requests() {
		r.Arrived, r.Route = time.Time{}, ""
		require.Equal(t, spillway.Request{Key: "acme", Priority: spillway.Critical, Cost: 3}, r)
	}
}

func TestCallWhoseClientIsGoneIsNotStarted(t *testing.T) {
	p := &gatetest.Recorder{}
	s := gated(t, nil, p)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	expired, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	for ctx, want := range map[context.Context]codes.Code{cancelled: codes.Canceled, expired: codes.DeadlineExceeded} {
		_, err := s.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: echoMethod}, func(context.Context, any) (any, error) {
			t.Error("the handler ran")
			return nil, nil
		})
		require.Equal(t, want, status.Code(err))
		require.NotErrorIs(t, err, spillway.ErrRejected)
	}
	require.Empty(t, p.Requests())
}

// recovering turns a panic into an error, as the interceptors for that do.
func recovering(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (_ any, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = status.Errorf(codes.Internal, "recovered: %v", v)
		}
	}()
	return handler(ctx, req)
}

func recoveringStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = status.Errorf(codes.Internal, "recovered: %v", v)
		}
	}()
	return handler(srv, ss)
}

func TestPanicWithARecoveryOnEitherSide(t *testing.T) {
	svc := &service{
		echo: func(context.Context, string) (string, error) { panic("boom") },
		down: func(string, grpc.ServerStream) error { panic("boom") },
	}
	for _, mode := range []grpcgate.StreamMode{grpcgate.WholeStream, grpcgate.PerMessage, grpcgate.DetachStream} {
		for _, outside := range []bool{true, false} {
			p := &gatetest.Recorder{}
			s := gated(t, &grpcgate.Options{Stream: func(string) grpcgate.StreamMode { return mode }}, p)
			o := []grpc.ServerOption{
				grpc.ChainUnaryInterceptor(s.Unary, recovering), grpc.ChainStreamInterceptor(s.Stream, recoveringStream),
			}
			if outside {
				o = []grpc.ServerOption{
					grpc.ChainUnaryInterceptor(recovering, s.Unary), grpc.ChainStreamInterceptor(recoveringStream, s.Stream),
				}
			}
			conn := start(t, false, svc, o, nil)
			_, err := echo(context.Background(), conn, "hello")
			require.Equal(t, codes.Internal, status.Code(err))
			require.ErrorContains(t, err, "recovered: boom")
			_, err = receive(opened(t, conn, downMethod, "a"))
			require.ErrorContains(t, err, "recovered: boom")
			want := map[grpcgate.StreamMode][]spillway.Outcome{
				grpcgate.WholeStream:  {spillway.Failure, spillway.Failure},
				grpcgate.PerMessage:   {spillway.Failure, spillway.Ignored, spillway.Failure},
				grpcgate.DetachStream: {spillway.Failure, spillway.Ignored},
			}
			awaitOutcomes(t, p, want[mode]...)
			require.Zero(t, s.Stats().Streams)
		}
	}
}

func TestPanicPassesThroughUntouched(t *testing.T) {
	p := &gatetest.Recorder{}
	s := gated(t, nil, p)
	boom := errors.New("boom")
	info := &grpc.UnaryServerInfo{FullMethod: echoMethod}
	require.PanicsWithValue(t, boom, func() {
		_, _ = s.Unary(context.Background(), nil, info, func(context.Context, any) (any, error) { panic(boom) })
	})
	ctx, cancel := context.WithCancel(context.Background())
	require.PanicsWithValue(t, boom, func() {
		_, _ = s.Unary(ctx, nil, info, func(context.Context, any) (any, error) { cancel(); panic(boom) })
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = s.Unary(context.Background(), nil, info, func(context.Context, any) (any, error) { runtime.Goexit(); return nil, nil })
	}()
	<-done
	awaitOutcomes(t, p, spillway.Failure, spillway.Ignored, spillway.Failure)
}

// A call whose deadline strikes between the tap and the handler holds nothing.
func TestDeadlineBetweenTapAndHandler(t *testing.T) {
	bothWays(t, func(t *testing.T, tcp bool) {
		p := &gatetest.Recorder{}
		s := gated(t, nil, p)
		var ran atomic.Int64
		svc := &service{echo: func(_ context.Context, text string) (string, error) { ran.Add(1); return text, nil }}
		conn := start(t, tcp, svc, append(behind(s), grpc.InTapHandle(s.Tap)), nil)
		_, err := echo(context.Background(), conn, "the connection is there")
		require.NoError(t, err)
		awaitOutcomes(t, p, spillway.Refused, spillway.Success)
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		// The header of a unary call whose message never comes.
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, echoMethod)
		require.NoError(t, err)
		_, err = receive(stream)
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		awaitOutcomes(t, p, spillway.Refused, spillway.Success, spillway.Refused)
		require.Equal(t, int64(1), ran.Load())
	})
}

func TestOptionsThatCannotBeRight(t *testing.T) {
	gate := spillway.New()
	for want, o := range map[string]grpcgate.Options{
		"grpcgate: MaxStreams: must be at least 0, got -1":                              {MaxStreams: -1},
		"grpcgate: MinBudget: must be at least 0, got -1ns":                             {MinBudget: -1},
		"grpcgate: Code: must be ResourceExhausted or Unavailable, got InvalidArgument": {Code: codes.InvalidArgument},
	} {
		_, err := grpcgate.NewServer(gate, &o)
		require.EqualError(t, err, want)
		co := &grpcgate.ClientOptions{MaxStreams: o.MaxStreams, MinBudget: o.MinBudget, Code: o.Code}
		_, err = grpcgate.NewClient(gate, co)
		require.EqualError(t, err, want)
	}
	_, err := grpcgate.NewServer(nil, nil)
	require.EqualError(t, err, "grpcgate: gate: must be a Gate, got nil")
	_, err = grpcgate.NewClient(nil, nil)
	require.EqualError(t, err, "grpcgate: gate: must be a Gate, got nil")
}
