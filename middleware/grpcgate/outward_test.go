package grpcgate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

// errInner is the refusal of a policy whose name is nobody's business.
var errInner = &spillway.Rejection{Policy: "payments-db-7", Reason: "open", RetryAfter: 3 * time.Second, OverQuota: true}

// A handler whose own call was refused answers like a server that refuses, and tells nobody by whom.
func TestInnerRefusalIsARefusal(t *testing.T) {
	inner := gatedClient(t, nil, gatetest.Refusing(errInner))
	connection := conn(t)
	local := func() error {
		return inner.Unary(context.Background(), echoMethod, nil, nil, connection, nil)
	}
	require.ErrorIs(t, local(), spillway.ErrRejected)
	for name, cause := range map[string]func() error{
		"of a client":          local,
		"of a client, wrapped": func() error { return fmt.Errorf("charge: %w", local()) },
		"of a gate":            func() error { return errInner },
		"of a gate, wrapped":   func() error { return fmt.Errorf("charge: %w", errInner) },
	} {
		for mode, m := range streamModes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				p := &gatetest.Recorder{}
				svc := &service{
					echo: func(context.Context, string) (string, error) { return "", cause() },
					down: func(string, grpc.ServerStream) error { return cause() },
				}
				conn := start(t, false, svc, behind(gated(t, &grpcgate.Options{Stream: always(m)}, p)), nil)
				var trailer metadata.MD
				_, err := echo(context.Background(), conn, "hello", grpc.Trailer(&trailer))
				requireInner(t, err, trailer)
				stream := opened(t, conn, downMethod, "a")
				_, err = receive(stream)
				requireInner(t, err, stream.Trailer())
				require.Eventually(t, func() bool { return p.InFlight() == 0 }, 10*time.Second, time.Millisecond)
				require.NotContains(t, p.Outcomes(), spillway.Failure)
				require.NotContains(t, p.Outcomes(), spillway.Dropped)
			})
		}
	}
}

func requireInner(t *testing.T, err error, trailer metadata.MD) {
	t.Helper()
	require.EqualError(t, err, "rpc error: code = ResourceExhausted desc = server has no capacity for this call now")
	require.GreaterOrEqual(t, retryInfo(t, err), errInner.RetryAfter)
	require.Equal(t, retryInfo(t, err), pushback(t, trailer))
}

// What a handler says by a status of its own stands, and so does any other error.
func TestErrorsThatAreNoInnerRefusal(t *testing.T) {
	own := status.Error(codes.Aborted, "try another shop")
	for _, err := range []error{own, fmt.Errorf("%w: %w", own, errInner), errors.New("oops"), nil} {
		s := gated(t, nil, admitter{})
		_, got := s.Unary(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: echoMethod}, func(context.Context, any) (any, error) {
			return nil, err
		})
		require.Equal(t, err, got)
	}
}

// Without a gate around the handler, the refusal of its client names no policy either.
func TestRefusalOfAClientNamesNoPolicy(t *testing.T) {
	inner := gatedClient(t, nil, gatetest.Refusing(errInner))
	connection := conn(t)
	outer := start(t, false, &service{echo: func(context.Context, string) (string, error) {
		return "", fmt.Errorf("charge: %w", inner.Unary(context.Background(), echoMethod, nil, nil, connection, nil))
	}}, nil, nil)
	_, err := echo(context.Background(), outer, "hello")
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.NotContains(t, err.Error(), errInner.Policy)
	require.Equal(t, errInner.RetryAfter, retryInfo(t, err))
}

// The refusal of a gate further in passes as it is.
func TestRefusalOfAnInnerServerGate(t *testing.T) {
	outer, inner := gated(t, nil, admitter{}), gated(t, nil, refuser{})
	conn := start(t, false, unreachable(t), []grpc.ServerOption{grpc.ChainUnaryInterceptor(outer.Unary, inner.Unary)}, nil)
	var trailer metadata.MD
	_, err := echo(context.Background(), conn, "hello", grpc.Trailer(&trailer))
	require.Equal(t, retryInfo(t, err), pushback(t, trailer), "one trailer")
}
