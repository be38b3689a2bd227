package grpcgate_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
)

func TestAdmittedCallRunsAsWithoutTheGate(t *testing.T) {
	bothWays(t, func(t *testing.T, tcp bool) {
		p := &recorder{}
		conn := start(t, tcp, &service{}, behind(gated(t, nil, p)), nil)
		answer, err := echo(context.Background(), conn, "hello")
		require.NoError(t, err)
		require.Equal(t, "hello", answer)
		p.awaitOutcomes(t, spillway.Success)
	})
}

// retryInfo returns the delay of the RetryInfo of err.
func retryInfo(t *testing.T, err error) time.Duration {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	t.Fatalf("no RetryInfo in %v", err)
	return 0
}

func TestRefusedUnary(t *testing.T) {
	bothWays(t, func(t *testing.T, tcp bool) {
		s := gated(t, nil, &recorder{refusal: errFull})
		svc := &service{echo: func(context.Context, string) (string, error) {
			t.Error("the handler of a refused call ran")
			return "", nil
		}}
		conn := start(t, tcp, svc, behind(s), nil)
		var trailer metadata.MD
		_, err := echo(context.Background(), conn, "hello", grpc.Trailer(&trailer))
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.Equal(t, "server has no capacity for this call now", status.Convert(err).Message())
		delay := retryInfo(t, err)
		require.GreaterOrEqual(t, delay, errFull.RetryAfter)
		require.LessOrEqual(t, delay, errFull.RetryAfter*135/100)
		require.Len(t, trailer.Get("grpc-retry-pushback-ms"), 1)
		ms, err := time.ParseDuration(trailer.Get("grpc-retry-pushback-ms")[0] + "ms")
		require.NoError(t, err)
		require.Equal(t, delay, ms)
	})
}
