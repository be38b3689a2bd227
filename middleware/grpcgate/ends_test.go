package grpcgate_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/grpcgate"
	"github.com/spillway-go/spillway/stats"
)

const overloadKey = "spillway-overload"

// A holding policy is a Recorder that asks clients to hold back, like a shedder.
type holding struct {
	gatetest.Recorder

	share atomic.Int64 // of Normal, in thousandths
}

func (p *holding) Metrics() iter.Seq[stats.Metric] {
	return func(yield func(stats.Metric) bool) {
		_ = yield(stats.Metric{Name: "spillway.shedder.hold_back_at"}) &&
			yield(stats.Metric{Name: "spillway.shedder.hold_back", Value: float64(p.share.Load()) / 1000})
	}
}

func TestServersTellClients(t *testing.T) {
	p := &holding{}
	s := gated(t, &grpcgate.Options{TellClients: true, Stream: func(string) grpcgate.StreamMode { return grpcgate.WholeStream }}, p)
	conn := start(t, true, &service{}, behind(s), nil)
	ask := func() []string {
		var trailer metadata.MD
		_, err := echo(t.Context(), conn, "hello", grpc.Trailer(&trailer))
		if err != nil {
			require.Equal(t, codes.ResourceExhausted, status.Code(err))
			require.Len(t, trailer["grpc-retry-pushback-ms"], 1)
		}
		return trailer[overloadKey]
	}
	p.share.Store(400)
	for range 5 {
		got := ask()
		require.Len(t, got, 1, "each call during an overload has it")
		require.Regexp(t, `^level=0, reduce=0\.4, valid=2000, seq=[0-9]+, src="[a-z0-9]{8}"$`, got[0])
	}
	p.Refuse(errFull)
	require.Len(t, ask(), 1)
	stream, err := openStream(t.Context(), conn, chatMethod)
	require.NoError(t, err)
	_, err = receive(stream)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.Len(t, stream.Trailer()[overloadKey], 1, "a refused stream has it too")

	p.Refuse(nil)
	quiet := start(t, true, &service{}, behind(gated(t, nil, p)), nil)
	var trailer metadata.MD
	_, err = echo(t.Context(), quiet, "hello", grpc.Trailer(&trailer))
	require.NoError(t, err)
	require.NotContains(t, trailer, overloadKey, "only if its user turned it on")
}

type priorityKey struct{}

// listening returns a client that takes the priority of a call from its context.
func listening(t *testing.T, targets ...string) *grpcgate.Client {
	return gatedClient(t, &grpcgate.ClientOptions{
		ListenTo: targets,
		Request: func(ctx context.Context, _ *grpc.ClientConn, _ string) spillway.Request {
			p, _ := ctx.Value(priorityKey{}).(spillway.Priority)
			return spillway.Request{Priority: p}
		},
	}, admitter{})
}

// A real server under a real client: what the server asks for is not called, by priority.
func TestClientsListen(t *testing.T) {
	p := &holding{}
	server := start(t, true, &service{}, behind(gated(t, &grpcgate.Options{TellClients: true}, p)), nil)
	dial := func(c *grpcgate.Client) *grpc.ClientConn {
		conn, err := grpc.NewClient(server.Target(), append(through(c), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	client := listening(t, server.Target())
	conn := dial(client)
	called := func(conn *grpc.ClientConn, priority spillway.Priority) (n int) {
		ctx := context.WithValue(t.Context(), priorityKey{}, priority)
		for i := range 300 {
			var err error
			if i%2 == 0 {
				_, err = echo(ctx, conn, "hello")
			} else {
				err = downToTheEnd(ctx, conn)
			}
			if errors.Is(err, spillway.ErrRejected) {
				require.Equal(t, codes.Unavailable, status.Code(err))
				continue
			}
			require.NoError(t, err)
			n++
		}
		return n
	}
	require.Equal(t, 300, called(conn, spillway.Sheddable))
	p.share.Store(500)
	time.Sleep(120 * time.Millisecond) // a report lasts 100 ms
	require.Equal(t, 300, called(conn, spillway.Critical))
	require.LessOrEqual(t, called(conn, spillway.Sheddable), 10, "lower priorities: only probes")
	require.InDelta(t, 150, called(conn, spillway.Normal), 60)
	require.InDelta(t, 300+150, client.Stats().HeldBack, 70)
	require.Zero(t, client.Stats().Throttled)

	require.Equal(t, 300, called(dial(listening(t, "dns:///other.example")), spillway.Sheddable), "targets that are not listed say nothing")
	require.Equal(t, 300, called(dial(listening(t)), spillway.Sheddable))
}

// downToTheEnd makes a call that streams answers, and reads them.
func downToTheEnd(ctx context.Context, conn *grpc.ClientConn) error {
	stream, err := openStream(ctx, conn, downMethod)
	if err != nil {
		return err
	}
	if err = send(stream, "1"); err == nil {
		err = stream.CloseSend()
	}
	for err == nil {
		_, err = receive(stream)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// A server that refuses and says nothing is called less.
func TestClientsThrottle(t *testing.T) {
	conn := start(t, false, &service{}, behind(gated(t, nil, refuser{})), nil)
	client := listening(t, conn.Target())
	calls := 0
	for range 500 {
		err := client.Unary(t.Context(), echoMethod, nil, nil, conn, func(
			context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption,
		) error {
			calls++
			return status.Error(codes.ResourceExhausted, "full")
		})
		require.Error(t, err)
	}
	require.Less(t, calls, 150)
	require.Equal(t, int64(500-calls), client.Stats().Throttled)
}

// The options of a caller stay as they are.
func TestListeningLeavesTheOptionsOfTheCaller(t *testing.T) {
	conn := conn(t)
	client := listening(t, conn.Target())
	opts := make([]grpc.CallOption, 1, 2)
	opts[0] = grpc.WaitForReady(true)
	spare := opts[:2]
	err := client.Unary(t.Context(), echoMethod, nil, nil, conn, func(
		_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, got ...grpc.CallOption,
	) error {
		require.Len(t, got, 2)
		return nil
	}, opts...)
	require.NoError(t, err)
	require.Nil(t, spare[1])
}

func TestInvalidListenToIsNamed(t *testing.T) {
	_, err := grpcgate.NewClient(spillway.New(), &grpcgate.ClientOptions{ListenTo: []string{"a", ""}})
	require.EqualError(t, err, `grpcgate: ListenTo[1]: must be a target of grpc.NewClient, got ""`)
	require.True(t, strings.HasPrefix(err.Error(), "grpcgate: "))
}
