package grpcgate_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

func gatedClient(t testing.TB, o *grpcgate.ClientOptions, policies ...spillway.Policy) *grpcgate.Client {
	t.Helper()
	c, err := grpcgate.NewClient(spillway.New(policies...), o)
	require.NoError(t, err)
	return c
}

func through(c *grpcgate.Client) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithUnaryInterceptor(c.Unary), grpc.WithStreamInterceptor(c.Stream)}
}

func TestClientRefusesLocally(t *testing.T) {
	for want, o := range map[codes.Code]*grpcgate.ClientOptions{
		codes.Unavailable: nil, codes.ResourceExhausted: {Code: codes.ResourceExhausted},
	} {
		conn := start(t, false, unreachable(t), nil, through(gatedClient(t, o, refuser{})))
		_, unary := echo(context.Background(), conn, "hello")
		_, stream := openStream(context.Background(), conn, chatMethod)
		for _, err := range []error{unary, stream} {
			require.ErrorIs(t, err, spillway.ErrRejected)
			var rej *spillway.Rejection
			require.ErrorAs(t, err, &rej)
			require.Same(t, errFull, rej)
			st, ok := status.FromError(err)
			require.True(t, ok)
			require.Equal(t, want, st.Code())
			require.Equal(t, "refused before it was sent", st.Message(), "a remote caller may see it")
			require.Equal(t, errFull.RetryAfter, retryInfo(t, err))
			require.Equal(t, st.Err().Error(), err.Error())
		}
	}
}

func TestClientRefusalWithoutAHint(t *testing.T) {
	rej := &spillway.Rejection{Policy: "fake", Reason: "full"}
	c := gatedClient(t, nil, gatetest.Refusing(rej))
	err := c.Unary(context.Background(), echoMethod, nil, nil, conn(t), nil)
	require.Empty(t, status.Convert(err).Details())
	require.Equal(t, codes.Unavailable, status.Code(err))
}

// conn returns a connection that is never used.
func conn(t testing.TB) *grpc.ClientConn {
	t.Helper()
	return start(t, false, &service{}, nil, nil)
}

func TestClientOfAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := gatedClient(t, nil, admitter{})
	err := c.Unary(ctx, echoMethod, nil, nil, conn(t), nil)
	require.Equal(t, codes.Canceled, status.Code(err))
	require.NotErrorIs(t, err, spillway.ErrRejected)
	_, err = c.Stream(ctx, &grpc.StreamDesc{}, conn(t), chatMethod, nil)
	require.Equal(t, codes.Canceled, status.Code(err))
}

func TestClientLearnsFromTheStatus(t *testing.T) {
	var answer error
	svc := &service{echo: func(context.Context, string) (string, error) { return "", answer }}
	p := &gatetest.Recorder{}
	connection := start(t, true, svc, nil, through(gatedClient(t, nil, p)))
	var want []spillway.Outcome
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		answer = status.Error(code, "text")
		_, err := echo(context.Background(), connection, "hello")
		require.Equal(t, code, status.Code(err))
		want = append(want, clientOutcome(code))
	}
	awaitOutcomes(t, p, want...)
	require.Equal(t, connection.Target(), p.Requests()[0].Key, "the key is the target")
}

func TestClientHandsOnTheWishOfTheServer(t *testing.T) {
	with := func(code codes.Code, d time.Duration) error {
		s, err := status.New(code, "text").WithDetails(&errdetails.ErrorInfo{}, &errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
		require.NoError(t, err)
		return s.Err()
	}
	for _, c := range []struct {
		err  error
		want time.Duration
	}{
		{with(codes.ResourceExhausted, time.Minute), time.Minute},
		{with(codes.Unavailable, time.Minute), time.Minute},
		{with(codes.Unavailable, -time.Minute), 0},
		{with(codes.Unavailable, 1000*time.Hour), 24 * time.Hour},
		{with(codes.NotFound, time.Minute), 0},
		{status.Error(codes.Unavailable, "text"), 0},
		{errors.New("plain"), 0},
		{nil, 0},
	} {
		p := &gatetest.Recorder{}
		err := gatedClient(t, nil, p).Unary(context.Background(), echoMethod, nil, nil, conn(t), invoke(func(context.Context) error { return c.err }))
		require.Equal(t, c.err, err)
		require.Equal(t, c.want, p.Results()[0].RetryAfter, "%v", c.err)
	}
}

func invoke(f func(context.Context) error) grpc.UnaryInvoker {
	return func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		return f(ctx)
	}
}

func TestClientInAHurry(t *testing.T) {
	noRequest := func(context.Context, *grpc.ClientConn, string) spillway.Request { return spillway.Request{} }
	for timeout, want := range map[time.Duration]spillway.Outcome{
		99 * time.Millisecond: spillway.Ignored, 100 * time.Millisecond: spillway.Failure,
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &gatetest.Recorder{}
			c := gatedClient(t, &grpcgate.ClientOptions{Request: noRequest}, p)
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			err := c.Unary(ctx, echoMethod, nil, nil, nil, invoke(func(ctx context.Context) error {
				<-ctx.Done()
				return status.FromContextError(ctx.Err()).Err()
			}))
			require.Equal(t, codes.DeadlineExceeded, status.Code(err))
			require.Equal(t, []spillway.Outcome{want}, p.Outcomes())
		})
	}
}

func TestClientPanicsPassThrough(t *testing.T) {
	p := &gatetest.Recorder{}
	c := gatedClient(t, nil, p)
	boom := errors.New("boom")
	require.PanicsWithValue(t, boom, func() {
		_ = c.Unary(context.Background(), echoMethod, nil, nil, conn(t), invoke(func(context.Context) error { panic(boom) }))
	})
	require.PanicsWithValue(t, boom, func() {
		_, _ = c.Stream(context.Background(), &grpc.StreamDesc{}, conn(t), chatMethod, streamer(func() (grpc.ClientStream, error) { panic(boom) }))
	})
	connection := conn(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Unary(context.Background(), echoMethod, nil, nil, connection, invoke(func(context.Context) error { runtime.Goexit(); return nil }))
	}()
	<-done
	awaitOutcomes(t, p, spillway.Failure, spillway.Failure, spillway.Failure)
}

func streamer(f func() (grpc.ClientStream, error)) grpc.Streamer {
	return func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		return f()
	}
}
