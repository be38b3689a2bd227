package grpcgate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

// byCode is the public table.
var byCode = map[codes.Code]spillway.Outcome{
	codes.OK:                 spillway.Success,
	codes.Canceled:           spillway.Ignored,
	codes.Unknown:            spillway.Failure,
	codes.InvalidArgument:    spillway.Ignored,
	codes.DeadlineExceeded:   spillway.Failure,
	codes.NotFound:           spillway.Ignored,
	codes.AlreadyExists:      spillway.Ignored,
	codes.PermissionDenied:   spillway.Ignored,
	codes.ResourceExhausted:  spillway.Dropped,
	codes.FailedPrecondition: spillway.Ignored,
	codes.Aborted:            spillway.Ignored,
	codes.OutOfRange:         spillway.Ignored,
	codes.Unimplemented:      spillway.Ignored,
	codes.Internal:           spillway.Failure,
	codes.Unavailable:        spillway.Failure,
	codes.DataLoss:           spillway.Failure,
	codes.Unauthenticated:    spillway.Ignored,
}

// clientOutcome is the same for a client, to which an answer about the request is a sign of life.
func clientOutcome(code codes.Code) spillway.Outcome {
	if want := byCode[code]; want != spillway.Ignored || code == codes.Canceled {
		return want
	}
	return spillway.Success
}

func TestDefaultOutcome(t *testing.T) {
	require.Equal(t, spillway.Success, grpcgate.DefaultOutcome(nil))
	require.Equal(t, spillway.Success, grpcgate.DefaultClientOutcome(nil))
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		want, ok := byCode[code]
		require.True(t, ok, code)
		err := status.Error(code, "text")
		require.Equal(t, want, grpcgate.DefaultOutcome(err), code)
		require.Equal(t, clientOutcome(code), grpcgate.DefaultClientOutcome(err), code)
		if err != nil {
			require.Equal(t, want, grpcgate.DefaultOutcome(fmt.Errorf("wrapped: %w", err)), code)
		}
	}
	for _, code := range []codes.Code{codes.Unauthenticated + 1, 99} {
		future := status.Error(code, "a code of the future")
		require.Equal(t, spillway.Failure, grpcgate.DefaultOutcome(future))
		require.Equal(t, spillway.Failure, grpcgate.DefaultClientOutcome(future))
	}
	require.Equal(t, spillway.Success, grpcgate.DefaultOutcome(okError{}))
}

// okError is an error whose status is OK, as which gRPC sends it.
type okError struct{ error }

func (okError) GRPCStatus() *status.Status { return status.New(codes.OK, "") }

func TestDefaultOutcomeOfOtherErrors(t *testing.T) {
	for want, errs := range map[spillway.Outcome][]error{
		spillway.Failure: {errors.New("plain"), context.DeadlineExceeded, fmt.Errorf("wrapped: %w", context.DeadlineExceeded)},
		spillway.Ignored: {context.Canceled, fmt.Errorf("wrapped: %w", context.Canceled), errFull, fmt.Errorf("wrapped: %w", errFull)},
	} {
		for _, err := range errs {
			require.Equal(t, want, grpcgate.DefaultOutcome(err), "%v", err)
		}
	}
}

// serverOutcome is what a policy learns of a call that had timeout, or none if that is 0.
func serverOutcome(t *testing.T, o *grpcgate.Options, timeout time.Duration, handler func(ctx context.Context, cancel func()) error) spillway.Outcome {
	t.Helper()
	p := &gatetest.Recorder{}
	s := gated(t, o, p)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	_, _ = s.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: echoMethod}, func(ctx context.Context, _ any) (any, error) {
		return nil, handler(ctx, cancel)
	})
	require.Len(t, p.Outcomes(), 1)
	require.Zero(t, p.InFlight())
	return p.Outcomes()[0]
}

func TestServerOutcomes(t *testing.T) {
	until := func(ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() }
	for _, c := range []struct {
		name    string
		o       *grpcgate.Options
		timeout time.Duration
		handler func(context.Context, func()) error
		want    spillway.Outcome
	}{
		{"answered", nil, 0, func(context.Context, func()) error { return nil }, spillway.Success},
		{"the caller's error", nil, 0, func(context.Context, func()) error { return status.Error(codes.NotFound, "") }, spillway.Ignored},
		{"the service's error", nil, 0, func(context.Context, func()) error { return errors.New("oops") }, spillway.Failure},
		{"the client is gone", nil, 0, func(_ context.Context, cancel func()) error { cancel(); return errors.New("oops") }, spillway.Ignored},
		{"the client is gone, and had a deadline", nil, time.Hour, func(_ context.Context, cancel func()) error { cancel(); return nil }, spillway.Ignored},
		{"the deadline passed", nil, time.Second, until, spillway.Failure},
		{"the deadline passed, unnoticed", nil, time.Second, func(context.Context, func()) error {
			time.Sleep(2 * time.Second)
			return nil
		}, spillway.Failure},
		{"the client's timer went off first", nil, time.Second, func(_ context.Context, cancel func()) error {
			time.Sleep(time.Second - 2*time.Millisecond)
			cancel()
			return context.Canceled
		}, spillway.Failure},
		{"gone at the last moment that counts as the deadline", nil, time.Second, func(_ context.Context, cancel func()) error {
			time.Sleep(950 * time.Millisecond)
			cancel()
			return context.Canceled
		}, spillway.Failure},
		{"gone just before that", nil, time.Second, func(_ context.Context, cancel func()) error {
			time.Sleep(949 * time.Millisecond)
			cancel()
			return context.Canceled
		}, spillway.Ignored},
		{"too little time", nil, 99 * time.Millisecond, until, spillway.Ignored},
		{"enough time", nil, 100 * time.Millisecond, until, spillway.Failure},
		{"another budget", &grpcgate.Options{MinBudget: 10 * time.Millisecond}, 20 * time.Millisecond, until, spillway.Failure},
		{"too little time, downstream", nil, 99 * time.Millisecond, func(context.Context, func()) error {
			return status.Error(codes.DeadlineExceeded, "downstream")
		}, spillway.Ignored},
		{"an outcome of one's own", &grpcgate.Options{Outcome: func(context.Context, string, error) spillway.Outcome {
			return spillway.Dropped
		}}, 0, func(context.Context, func()) error { return nil }, spillway.Dropped},
	} {
		synctest.Test(t, func(t *testing.T) {
			require.Equal(t, c.want, serverOutcome(t, c.o, c.timeout, c.handler), c.name)
		})
	}
}

// The timers of a real client and server race for whose deadline strikes first.
func TestOutcomeOfAPassedDeadlineOverTheNetwork(t *testing.T) {
	bothWays(t, func(t *testing.T, tcp bool) {
		p := &gatetest.Recorder{}
		conn := start(t, tcp, &service{echo: func(ctx context.Context, text string) (string, error) {
			if text == "" {
				return "", nil
			}
			<-ctx.Done()
			return "", ctx.Err()
		}}, behind(gated(t, &grpcgate.Options{MinBudget: time.Millisecond}, p)), nil)
		_, err := echo(context.Background(), conn, "")
		require.NoError(t, err)
		for range 3 {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			_, err := echo(ctx, conn, "wait")
			cancel()
			require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		}
		require.Eventually(t, func() bool { return len(p.Outcomes()) == 4 }, 10*time.Second, time.Millisecond)
		// On a machine that is late, the server may hear of the client's timer well before its own would go off.
		require.Contains(t, p.Outcomes()[1:], spillway.Failure)
		require.Subset(t, []spillway.Outcome{spillway.Failure, spillway.Ignored}, p.Outcomes()[1:])

		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(20*time.Millisecond, cancel)
		_, err = echo(ctx, conn, "wait")
		require.Equal(t, codes.Canceled, status.Code(err))
		require.Eventually(t, func() bool { return len(p.Outcomes()) == 5 }, 10*time.Second, time.Millisecond)
		require.Equal(t, spillway.Ignored, p.Outcomes()[4])
	})
}

// A client that goes away at any moment is no failure: not even between two looks at the context.
func TestOutcomeOfAClientThatGoesAwayAtAnyLook(t *testing.T) {
	for looks := range 12 {
		p := &gatetest.Recorder{}
		s := gated(t, nil, p)
		ctx := &fading{Context: context.Background(), looks: looks}
		_, _ = s.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: echoMethod}, func(context.Context, any) (any, error) { return nil, nil })
		for _, o := range p.Outcomes() {
			require.Contains(t, []spillway.Outcome{spillway.Ignored, spillway.Success}, o, "after %d looks", looks)
		}
	}
}

// fading is a context that is cancelled after so many looks at its Err.
type fading struct {
	context.Context

	looks int
}

func (f *fading) Err() error {
	if f.looks--; f.looks < 0 {
		return context.Canceled
	}
	return nil
}
