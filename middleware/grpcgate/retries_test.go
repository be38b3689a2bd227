package grpcgate_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
)

// retrying is the service config of docs/grpc.md, with shorter waits.
const retrying = `{
	"methodConfig": [{"name": [{}], "retryPolicy": {
		"maxAttempts": 3, "initialBackoff": "0.001s", "maxBackoff": "0.01s", "backoffMultiplier": 2,
		"retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}],
	"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}}`

// The retries of grpc-go wait as long as a refusal asks, say which attempt they are, and have one budget for all calls of
// a connection: while the server refuses everything, nearly every call reaches it once.
func TestRetriesOfGRPCHaveABudget(t *testing.T) {
	var reached, again atomic.Int64
	count := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		reached.Add(1)
		if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("grpc-previous-rpc-attempts")) > 0 {
			again.Add(1)
		}
		return handler(ctx, req)
	}
	full := &spillway.Rejection{Policy: "fake", Reason: "full", RetryAfter: 50 * time.Millisecond}
	s := gated(t, nil, gatetest.Refusing(full))
	conn := start(t, true, &service{}, []grpc.ServerOption{grpc.ChainUnaryInterceptor(count, s.Unary)},
		append(through(gatedClient(t, nil, &gatetest.Recorder{})), grpc.WithDefaultServiceConfig(retrying)))
	const calls = 60
	first := time.Now()
	for i := range calls {
		_, err := echo(t.Context(), conn, "hello")
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		if i == 0 {
			require.GreaterOrEqual(t, time.Since(first), 2*full.RetryAfter, "two retries, each after the delay that the server asked for")
		}
	}
	require.Equal(t, reached.Load()-calls, again.Load(), "each retry says that it is one")
	require.GreaterOrEqual(t, again.Load(), int64(2))
	require.LessOrEqual(t, again.Load(), int64(10), "five failures use half of the tokens up")
}
