package grpcgate_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

// retryInfo returns the delay of the RetryInfo of err.
func retryInfo(t testing.TB, err error) time.Duration {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	t.Fatalf("no RetryInfo in %v", err)
	return 0
}

// pushback returns the only value of the trailer.
func pushback(t testing.TB, trailer metadata.MD) time.Duration {
	t.Helper()
	values := trailer.Get("grpc-retry-pushback-ms")
	require.Len(t, values, 1, "gRPC obeys one value alone")
	ms, err := strconv.ParseInt(values[0], 10, 32)
	require.NoError(t, err)
	require.Positive(t, ms)
	return time.Duration(ms) * time.Millisecond
}

func unreachable(t *testing.T) *service {
	t.Helper()
	return &service{echo: func(context.Context, string) (string, error) {
		t.Error("the handler of a refused call ran")
		return "", nil
	}}
}

func TestRefusedUnary(t *testing.T) {
	bothWays(t, func(t *testing.T, tcp bool) {
		for _, c := range []struct {
			rej  *spillway.Rejection
			code codes.Code
			want codes.Code
			text string
		}{
			{errFull, 0, codes.ResourceExhausted, "server has no capacity for this call now"},
			{errFull, codes.Unavailable, codes.Unavailable, "server has no capacity for this call now"},
			{errOverQuota, 0, codes.ResourceExhausted, "quota exceeded"},
			{errOverQuota, codes.Unavailable, codes.ResourceExhausted, "quota exceeded"},
		} {
			s := gated(t, &grpcgate.Options{Code: c.code}, gatetest.Refusing(c.rej))
			conn := start(t, tcp, unreachable(t), behind(s), nil)
			var trailer metadata.MD
			_, err := echo(context.Background(), conn, "hello", grpc.Trailer(&trailer))
			require.Equal(t, c.want, status.Code(err))
			require.Equal(t, c.text, status.Convert(err).Message(), "it tells nothing of the policies inside")
			delay := retryInfo(t, err)
			require.GreaterOrEqual(t, delay, c.rej.RetryAfter)
			require.LessOrEqual(t, delay, c.rej.RetryAfter*135/100)
			require.Equal(t, delay, pushback(t, trailer))
		}
	})
}

func TestTapRefusesAsTheInterceptorDoes(t *testing.T) {
	bothWays(t, func(t *testing.T, tcp bool) {
		s := gated(t, nil, refuser{})
		var decoded bool
		conn := start(t, tcp, unreachable(t), append(behind(s), grpc.InTapHandle(s.Tap), grpc.ChainUnaryInterceptor(
			func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
				decoded = true
				return nil, errors.New("the call came through the tap")
			})), nil)
		_, err := echo(context.Background(), conn, "hello")
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.Equal(t, "server has no capacity for this call now", status.Convert(err).Message())
		require.GreaterOrEqual(t, retryInfo(t, err), errFull.RetryAfter)
		require.False(t, decoded)
		require.Equal(t, grpcgate.Stats{Tapped: 1}, s.Stats())
	})
}

// What a refused call returns to the interceptors outside of the gate.
func TestRefusalIsAStatusAndARejection(t *testing.T) {
	p := gatetest.Refusing(errFull)
	s := gated(t, nil, p)
	_, err := s.Unary(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: echoMethod}, nil)
	require.ErrorIs(t, err, spillway.ErrRejected)
	var rej *spillway.Rejection
	require.ErrorAs(t, err, &rej)
	require.Same(t, errFull, rej)
	st, ok := status.FromError(err)
	require.True(t, ok)
	require.Equal(t, codes.ResourceExhausted, st.Code())
	require.EqualError(t, err, "rpc error: code = ResourceExhausted desc = server has no capacity for this call now")
	require.Equal(t, spillway.Ignored, grpcgate.DefaultOutcome(err), "a local rejection is nobody's failure")
}

type failingPolicy struct{ err error }

func (p failingPolicy) Admit(context.Context, spillway.Request) (spillway.Ticket, error) {
	return 0, p.err
}
func (failingPolicy) Done(spillway.Request, spillway.Ticket, spillway.Result) {}

func TestRefusalThatIsNoRejection(t *testing.T) {
	for _, c := range []struct {
		err  error
		want codes.Code
	}{
		{errors.New("broken policy"), codes.ResourceExhausted},
		{context.DeadlineExceeded, codes.DeadlineExceeded}, // in the queue
		{context.Canceled, codes.Canceled},
	} {
		s := gated(t, nil, failingPolicy{c.err})
		_, err := s.Unary(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: echoMethod}, nil)
		require.Equal(t, c.want, status.Code(err))
	}
}

// A client with a retry policy waits for as long as it was asked to, rather than for its own backoff.
func TestRetryPolicyWaitsThePushback(t *testing.T) {
	const config = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "0.001s",
		"maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`
	bothWays(t, func(t *testing.T, tcp bool) {
		p := gatetest.Refusing(errFull)
		s := gated(t, nil, p)
		var mu sync.Mutex
		var came []time.Time
		watch := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			mu.Lock()
			came = append(came, time.Now())
			mu.Unlock()
			resp, err := handler(ctx, req)
			p.Refuse(nil)
			return resp, err
		}
		conn := start(t, tcp, &service{}, []grpc.ServerOption{grpc.ChainUnaryInterceptor(watch, s.Unary)},
			[]grpc.DialOption{grpc.WithDefaultServiceConfig(config)})
		answer, err := echo(context.Background(), conn, "hello")
		require.NoError(t, err)
		require.Equal(t, "hello", answer)
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, came, 2)
		require.GreaterOrEqual(t, came[1].Sub(came[0]), errFull.RetryAfter)
		awaitOutcomes(t, p, spillway.Success)
	})
}

func TestRefusedStream(t *testing.T) {
	for mode, name := range map[grpcgate.StreamMode]string{
		grpcgate.DetachStream: "detach", grpcgate.PerMessage: "per message", grpcgate.WholeStream: "whole",
	} {
		s := gated(t, &grpcgate.Options{Stream: func(string) grpcgate.StreamMode { return mode }}, refuser{})
		conn := start(t, false, &service{down: func(string, grpc.ServerStream) error {
			assert.Fail(t, "the handler of a refused stream ran")
			return nil
		}}, behind(s), nil)
		stream := opened(t, conn, downMethod, "a")
		_, err := receive(stream)
		require.Equal(t, codes.ResourceExhausted, status.Code(err), name)
		require.Equal(t, retryInfo(t, err), pushback(t, stream.Trailer()), name)
		require.Zero(t, s.Stats().Streams, name)
	}
}
