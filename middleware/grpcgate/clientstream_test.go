package grpcgate_test

import (
	"context"
	"io"
	"runtime"
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

func clientMode(mode grpcgate.StreamMode) *grpcgate.ClientOptions {
	return &grpcgate.ClientOptions{Stream: always(mode)}
}

func TestClientStreamLeavesTheGateWithTheFirstAnswer(t *testing.T) {
	bothWays(t, func(t *testing.T, tcp bool) {
		p := &gatetest.Recorder{}
		c := gatedClient(t, nil, p)
		conn := start(t, tcp, &service{}, nil, through(c))
		stream, err := openStream(context.Background(), conn, chatMethod)
		require.NoError(t, err)
		require.NoError(t, send(stream, "a"))
		require.Equal(t, 1, p.InFlight(), "the server has shown no sign of life")
		answer, err := receive(stream)
		require.NoError(t, err)
		require.Equal(t, "a", answer)
		awaitOutcomes(t, p, spillway.Success)
		require.Equal(t, grpcgate.Stats{Streams: 1}, c.Stats())
		say(t, stream, "b")
		require.NoError(t, stream.CloseSend())
		_, err = receive(stream)
		require.ErrorIs(t, err, io.EOF)
		awaitOutcomes(t, p, spillway.Success)
		require.Equal(t, grpcgate.Stats{}, c.Stats())
	})
}

func TestClientStreamLeavesTheGateWithTheHeader(t *testing.T) {
	p := &gatetest.Recorder{}
	c := gatedClient(t, nil, p)
	conn := start(t, false, &service{down: func(text string, s grpc.ServerStream) error {
		if text == "no header" {
			return status.Error(codes.Unavailable, "broken")
		}
		if err := s.SendHeader(metadata.Pairs("a", "b")); err != nil {
			return err
		}
		<-s.Context().Done() // nothing happens that is worth a message
		return nil
	}}, nil, through(c))
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := openStream(ctx, conn, downMethod)
	require.NoError(t, err)
	require.NoError(t, send(stream, "a"))
	_, err = stream.Header()
	require.NoError(t, err)
	awaitOutcomes(t, p, spillway.Success)
	require.Equal(t, int64(1), c.Stats().Streams)
	cancel()
	require.Eventually(t, func() bool { return c.Stats().Streams == 0 }, 10*time.Second, time.Millisecond)

	stream = opened(t, conn, downMethod, "no header")
	_, _ = stream.Header()
	_, err = receive(stream)
	require.Equal(t, codes.Unavailable, status.Code(err))
	awaitOutcomes(t, p, spillway.Success, spillway.Failure)
}

func TestClientStreamGivesBack(t *testing.T) {
	fails := &service{chat: func(grpc.ServerStream) error { return status.Error(codes.Unavailable, "broken") }}
	for _, c := range []struct {
		name string
		svc  *service
		end  func(t *testing.T, stream grpc.ClientStream, cancel func())
		want spillway.Outcome
	}{
		{"at EOF", &service{}, func(t *testing.T, stream grpc.ClientStream, _ func()) {
			t.Helper()
			say(t, stream, "a")
			require.NoError(t, stream.CloseSend())
			_, err := receive(stream)
			require.ErrorIs(t, err, io.EOF)
		}, spillway.Success},
		{"at an error", fails, func(t *testing.T, stream grpc.ClientStream, _ func()) {
			t.Helper()
			_, err := receive(stream)
			require.Equal(t, codes.Unavailable, status.Code(err))
		}, spillway.Failure},
		{"at the end of the context, unread", &service{}, func(_ *testing.T, _ grpc.ClientStream, cancel func()) { cancel() }, spillway.Ignored},
		{"at the end of the context, while it is read", &service{}, func(t *testing.T, stream grpc.ClientStream, cancel func()) {
			t.Helper()
			time.AfterFunc(20*time.Millisecond, cancel)
			_, err := receive(stream)
			require.Equal(t, codes.Canceled, status.Code(err))
		}, spillway.Ignored},
		{"when a message cannot be sent", &service{}, func(t *testing.T, stream grpc.ClientStream, _ func()) {
			t.Helper()
			require.Error(t, stream.SendMsg("no message"))
		}, spillway.Ignored},
	} {
		t.Run(c.name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, tcp bool) {
				p := &gatetest.Recorder{}
				client := gatedClient(t, clientMode(grpcgate.WholeStream), p)
				conn := start(t, tcp, c.svc, nil, through(client))
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				stream, err := openStream(ctx, conn, chatMethod)
				require.NoError(t, err)
				require.Equal(t, 1, p.InFlight())
				c.end(t, stream, cancel)
				awaitOutcomes(t, p, c.want)
				require.Zero(t, client.Stats())
				runtime.KeepAlive(stream)
			})
		})
	}
}

func TestClientStreamWithOneAnswerEndsWithIt(t *testing.T) {
	p := &gatetest.Recorder{}
	conn := start(t, false, &service{}, nil, through(gatedClient(t, clientMode(grpcgate.WholeStream), p)))
	stream := opened(t, conn, upMethod, "a")
	answer, err := receive(stream)
	require.NoError(t, err)
	require.Equal(t, "a", answer)
	awaitOutcomes(t, p, spillway.Success)
}

func TestClientStreamThatCannotBeOpened(t *testing.T) {
	p := &gatetest.Recorder{}
	c := gatedClient(t, nil, p)
	broken := status.Error(codes.Unavailable, "no connection")
	_, err := c.Stream(context.Background(), &grpc.StreamDesc{}, conn(t), chatMethod,
		streamer(func() (grpc.ClientStream, error) { return nil, broken }))
	require.Equal(t, broken, err)
	awaitOutcomes(t, p, spillway.Failure)
}

func TestClientStreamsHaveALimitOfTheirOwn(t *testing.T) {
	p := &gatetest.Recorder{}
	c := gatedClient(t, &grpcgate.ClientOptions{MaxStreams: 1}, p) // one key
	conn := start(t, false, &service{}, nil, through(c))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	first, err := openStream(ctx, conn, chatMethod)
	require.NoError(t, err)
	second, err := openStream(ctx, conn, chatMethod)
	require.NoError(t, err)
	say(t, first, "a")
	say(t, second, "b")
	require.Equal(t, 1, p.InFlight(), "one for which there is no room stays in flight")
	_, err = openStream(ctx, conn, chatMethod)
	require.ErrorIs(t, err, spillway.ErrRejected)
	require.Equal(t, grpcgate.Stats{Streams: 1, StreamsRefused: 1}, c.Stats())
	runtime.KeepAlive(first)
	runtime.KeepAlive(second)
	cancel()
	require.Eventually(t, func() bool { return p.InFlight() == 0 && c.Stats().Streams == 0 }, 10*time.Second, time.Millisecond)
}

func TestClientPerMessage(t *testing.T) {
	p := &gatetest.Recorder{}
	c := gatedClient(t, clientMode(grpcgate.PerMessage), p)
	conn := start(t, false, &service{}, nil, through(c))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := openStream(ctx, conn, chatMethod)
	require.NoError(t, err)
	i, s := spillway.Ignored, spillway.Success
	say(t, stream, "a") // the permit of the stream goes when that of the message comes
	awaitOutcomes(t, p, i, s)
	say(t, stream, "b")
	awaitOutcomes(t, p, i, s, s)
	require.Equal(t, int64(1), c.Stats().Streams)

	p.Refuse(errFull)
	require.ErrorIs(t, send(stream, "c"), spillway.ErrRejected)
	p.Refuse(nil)
	say(t, stream, "the stream goes on")
	require.NoError(t, send(stream, "unanswered"))
	require.Equal(t, 1, p.InFlight())
	runtime.KeepAlive(stream)
	cancel()
	awaitOutcomes(t, p, i, s, s, s, i)
	require.Zero(t, c.Stats().Streams)
}

// fakeStream is a ClientStream of which nothing is known but that it is one.
type fakeStream struct{ grpc.ClientStream }

func (fakeStream) RecvMsg(any) error { return nil }

func TestForgottenClientStream(t *testing.T) {
	p := &gatetest.Recorder{}
	c := gatedClient(t, clientMode(grpcgate.WholeStream), p)
	connection := conn(t)
	func() {
		stream, err := c.Stream(context.Background(), &grpc.StreamDesc{ServerStreams: true}, connection, chatMethod,
			streamer(func() (grpc.ClientStream, error) { return fakeStream{}, nil }))
		require.NoError(t, err)
		require.NoError(t, stream.RecvMsg(nil))
		require.Equal(t, 1, p.InFlight())
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return c.Stats().Leaked == 1
	}, 10*time.Second, time.Millisecond)
	awaitOutcomes(t, p, spillway.Ignored)
}

// The service config of a client retries a stream that was refused, although the gate watches it.
func TestClientStreamIsStillRetried(t *testing.T) {
	const config = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.001s",
		"maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`
	tries := 0
	p := &gatetest.Recorder{}
	svc := &service{down: func(text string, stream grpc.ServerStream) error {
		if tries++; tries < 3 {
			return status.Error(codes.ResourceExhausted, "once more")
		}
		return send(stream, text)
	}}
	conn := start(t, false, svc, nil, append(through(gatedClient(t, nil, p)), grpc.WithDefaultServiceConfig(config)))
	require.Equal(t, []string{"a"}, readAll(t, conn, downMethod, "a"))
	require.Equal(t, 3, tries)
	awaitOutcomes(t, p, spillway.Success)
}
