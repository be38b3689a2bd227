package grpcgate_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

func always(mode grpcgate.StreamMode) func(string) grpcgate.StreamMode {
	return func(string) grpcgate.StreamMode { return mode }
}

// opened returns a stream of method that sends one message and no more.
func opened(t testing.TB, conn *grpc.ClientConn, method, text string) grpc.ClientStream {
	t.Helper()
	stream, err := openStream(context.Background(), conn, method)
	require.NoError(t, err)
	if err := send(stream, text); err != nil {
		require.ErrorIs(t, err, io.EOF) // refused already
	}
	require.NoError(t, stream.CloseSend())
	return stream
}

func readAll(t testing.TB, conn *grpc.ClientConn, method, text string) (all []string) {
	t.Helper()
	stream := opened(t, conn, method, text)
	for {
		text, err := receive(stream)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, text)
	}
}

// openChat returns a stream that the server has admitted.
func openChat(ctx context.Context, t testing.TB, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	stream, err := openStream(ctx, conn, chatMethod)
	require.NoError(t, err)
	say(t, stream, "first")
	return stream
}

func say(t testing.TB, stream grpc.ClientStream, text string) {
	t.Helper()
	require.NoError(t, send(stream, text))
	answer, err := receive(stream)
	require.NoError(t, err)
	require.Equal(t, text, answer)
}

func TestOpenStreamHasLeftTheGate(t *testing.T) {
	bothWays(t, func(t *testing.T, tcp bool) {
		p := &gatetest.Recorder{}
		s := gated(t, nil, p)
		conn := start(t, tcp, &service{}, behind(s), nil)
		stream := openChat(context.Background(), t, conn)
		awaitOutcomes(t, p, spillway.Ignored)
		require.Equal(t, int64(1), s.Stats().Streams)

		p.Refuse(errFull)
		say(t, stream, "messages flow after the limit has dropped")
		_, err := receive(opened(t, conn, downMethod, "a"))
		require.Equal(t, codes.ResourceExhausted, status.Code(err), "while a new stream is refused")

		require.NoError(t, stream.CloseSend())
		_, err = receive(stream)
		require.ErrorIs(t, err, io.EOF)
		require.Eventually(t, func() bool { return s.Stats().Streams == 0 }, 10*time.Second, time.Millisecond)
		awaitOutcomes(t, p, spillway.Ignored)
	})
}

func TestOpenStreamsHaveALimitOfTheirOwn(t *testing.T) {
	s := gated(t, &grpcgate.Options{MaxStreams: 4}, admitter{})
	conn := start(t, false, &service{}, behind(s), nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	openChat(ctx, t, conn)
	openChat(ctx, t, conn) // now it has as many as are free
	_, err := receive(opened(t, conn, downMethod, "a"))
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.GreaterOrEqual(t, retryInfo(t, err), time.Second)
	require.Equal(t, grpcgate.Stats{Streams: 2, StreamsRefused: 1}, s.Stats())
	_, err = echo(ctx, conn, "unary calls are none of it")
	require.NoError(t, err)
	cancel()
	require.Eventually(t, func() bool { return s.Stats().Streams == 0 }, 10*time.Second, time.Millisecond)
	require.Len(t, readAll(t, conn, downMethod, "a"), 3)
}

func TestWholeStream(t *testing.T) {
	p := &gatetest.Recorder{}
	s := gated(t, &grpcgate.Options{Stream: always(grpcgate.WholeStream), MaxStreams: 1}, p)
	fail := status.Error(codes.Internal, "oops")
	conn := start(t, false, &service{down: func(text string, _ grpc.ServerStream) error {
		if text == "fail" {
			return fail
		}
		return nil
	}}, behind(s), nil)
	ctx, cancel := context.WithCancel(context.Background())
	stream := openChat(context.Background(), t, conn)
	openChat(ctx, t, conn)
	require.Equal(t, 2, p.InFlight(), "they hold their permits, and no slot")
	require.Zero(t, s.Stats().Streams)
	require.NoError(t, stream.CloseSend())
	_, err := receive(stream)
	require.ErrorIs(t, err, io.EOF)
	require.Eventually(t, func() bool { return p.InFlight() == 1 }, 10*time.Second, time.Millisecond)
	cancel()
	awaitOutcomes(t, p, spillway.Success, spillway.Ignored)
	require.Empty(t, readAll(t, conn, downMethod, "a"))
	_, err = receive(opened(t, conn, downMethod, "fail"))
	require.Equal(t, codes.Internal, status.Code(err))
	awaitOutcomes(t, p, spillway.Success, spillway.Ignored, spillway.Success, spillway.Failure)
}

func TestPerMessage(t *testing.T) {
	p := &gatetest.Recorder{}
	s := gated(t, &grpcgate.Options{Stream: always(grpcgate.PerMessage)}, p)
	conn := start(t, false, &service{}, behind(s), nil)
	stream := openChat(context.Background(), t, conn)
	require.Eventually(t, func() bool { return p.InFlight() == 0 }, 10*time.Second, time.Millisecond, "it waits for a message")
	say(t, stream, "second")
	awaitOutcomes(t, p, spillway.Ignored, spillway.Success, spillway.Success)
	require.Equal(t, int64(1), s.Stats().Streams)

	p.Refuse(errFull)
	require.NoError(t, send(stream, "third"))
	_, err := receive(stream)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.Equal(t, retryInfo(t, err), pushback(t, stream.Trailer()))
	awaitOutcomes(t, p, spillway.Ignored, spillway.Success, spillway.Success)
	require.Eventually(t, func() bool { return s.Stats().Streams == 0 }, 10*time.Second, time.Millisecond)
}

// The last message goes as the handler does.
func TestPerMessageEndsWithTheHandler(t *testing.T) {
	p := &gatetest.Recorder{}
	s := gated(t, &grpcgate.Options{Stream: always(grpcgate.PerMessage)}, p)
	conn := start(t, false, &service{up: func(stream grpc.ServerStream) error {
		for range 2 {
			if _, err := receive(stream); err != nil {
				return err
			}
		}
		return errors.New("the second was too much")
	}}, behind(s), nil)
	stream, err := openStream(context.Background(), conn, upMethod)
	require.NoError(t, err)
	require.NoError(t, send(stream, "a"))
	require.NoError(t, send(stream, "b"))
	_, err = receive(stream)
	require.Equal(t, codes.Unknown, status.Code(err))
	awaitOutcomes(t, p, spillway.Ignored, spillway.Success, spillway.Failure)
}

// lingering is a stream whose message comes when the handler has returned.
type lingering struct {
	grpc.ServerStream
	ctx     context.Context
	release chan struct{}
}

func (s *lingering) Context() context.Context { return s.ctx }
func (s *lingering) RecvMsg(any) error        { <-s.release; return nil }

func TestPerMessageThatNobodyHandles(t *testing.T) {
	p := &gatetest.Recorder{}
	s := gated(t, &grpcgate.Options{Stream: always(grpcgate.PerMessage)}, p)
	ss := &lingering{ctx: context.Background(), release: make(chan struct{})}
	received := make(chan error)
	require.NoError(t, s.Stream(nil, ss, &grpc.StreamServerInfo{FullMethod: chatMethod}, func(_ any, stream grpc.ServerStream) error {
		go func() { received <- stream.RecvMsg(nil) }()
		return nil
	}))
	close(ss.release)
	require.NoError(t, <-received)
	awaitOutcomes(t, p, spillway.Ignored, spillway.Ignored)
}
