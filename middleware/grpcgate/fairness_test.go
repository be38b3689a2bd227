package grpcgate_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/deadline"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

// Two hundred calls that are turned down at once do not make the method look fast.
func TestBadRequestsTeachNoLatencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatetest.Recorder{}
		m := taught(t, nil, p)
		for range 200 {
			_, err := m.s.Unary(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: echoMethod}, func(context.Context, any) (any, error) {
				return nil, status.Error(codes.Unauthenticated, "who are you?")
			})
			require.Equal(t, codes.Unauthenticated, status.Code(err))
		}
		require.Equal(t, spillway.Ignored, p.Outcomes()[len(p.Outcomes())-1])
		for range 20 {
			_ = m.call(40 * time.Millisecond)
		}
		require.GreaterOrEqual(t, m.refused(), int64(19))
	})
}

// A deadline that most calls to the method do not meet says nothing. One that they meet does, when the service hangs.
func TestMinBudgetIsThatOfTheMethod(t *testing.T) {
	for _, admitsLate := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &gatetest.Recorder{}
			m := &method{s: gated(t, nil, spillway.Must(deadline.New(nil)), p), name: echoMethod}
			if admitsLate {
				m.s = gated(t, nil, p)
			}
			for i := range 200 {
				m.takes = 300 * time.Millisecond
				if i%5 == 0 {
					m.takes = 20 * time.Millisecond // often enough for 130 ms not to be hopeless
				}
				require.NoError(t, m.call(0))
			}
			m.takes = time.Hour
			last := func(left time.Duration) spillway.Outcome {
				require.ErrorIs(t, m.call(left), context.DeadlineExceeded)
				return p.Outcomes()[len(p.Outcomes())-1]
			}
			require.Equal(t, spillway.Ignored, last(130*time.Millisecond))
			require.Equal(t, spillway.Ignored, last(250*time.Millisecond))
			require.Equal(t, spillway.Failure, last(400*time.Millisecond))
			if !admitsLate {
				return // the others would be refused
			}
			for range 1000 {
				last(400 * time.Millisecond)
			}
			require.Equal(t, spillway.Failure, last(400*time.Millisecond), "a hang does not become normal")
		})
	}
}

// A pipe is a stream that takes its time: for each message received, and for each one sent.
type pipe struct {
	grpc.ServerStream
	grpc.ClientStream

	ctx        context.Context
	recv, send time.Duration
	recvErr    error
	end        int // after so many messages comes io.EOF
	received   int
	lost       bool // SendMsg leaves it to RecvMsg to tell why it failed
}

func (s *pipe) Context() context.Context { return s.ctx }
func (s *pipe) CloseSend() error         { return nil }

func (s *pipe) SendMsg(any) error {
	err := s.wait(s.send, nil)
	if err != nil && s.lost {
		return io.EOF
	}
	return err
}

func (s *pipe) RecvMsg(any) error {
	if s.received++; s.end > 0 && s.received > s.end {
		return io.EOF
	}
	return s.wait(s.recv, s.recvErr)
}

func (s *pipe) wait(d time.Duration, err error) error {
	select {
	case <-time.After(d):
		return err
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

// streamResult is what a policy learns of a stream of a server.
func streamResult(t *testing.T, mode grpcgate.StreamMode, timeout time.Duration, s *pipe, handler func(grpc.ServerStream) error) spillway.Result {
	t.Helper()
	p := &gatetest.Recorder{}
	ctx := context.Background()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	s.ctx = ctx
	server := gated(t, &grpcgate.Options{Stream: always(mode)}, p)
	_ = server.Stream(nil, &serverPipe{s}, &grpc.StreamServerInfo{FullMethod: upMethod}, func(_ any, ss grpc.ServerStream) error {
		return handler(ss)
	})
	results := p.Results()
	require.Zero(t, p.InFlight())
	return results[len(results)-1]
}

// serverPipe is a pipe as a ServerStream.
type serverPipe struct{ *pipe }

func (*serverPipe) SetTrailer(metadata.MD) {}

func TestServerStreamsDoNotPayForTheirClients(t *testing.T) {
	const work = 50 * time.Millisecond
	oneByOne := func(ss grpc.ServerStream) error {
		for range 3 {
			if err := ss.RecvMsg(nil); err != nil {
				return errors.New("hidden")
			}
			time.Sleep(work)
			if err := ss.SendMsg(nil); err != nil {
				return errors.New("hidden")
			}
		}
		return nil
	}
	for _, c := range []struct {
		name    string
		mode    grpcgate.StreamMode
		timeout time.Duration
		stream  pipe
		handler func(grpc.ServerStream) error
		want    spillway.Result
	}{
		{"slow both ways", grpcgate.WholeStream, 0, pipe{recv: time.Second, send: time.Second}, oneByOne,
			spillway.Result{Outcome: spillway.Success, Latency: 3 * work}},
		{"slow to read, by message", grpcgate.PerMessage, 0, pipe{recv: time.Second, send: time.Second}, oneByOne,
			spillway.Result{Outcome: spillway.Success, Latency: work}},
		{"stalls until the deadline", grpcgate.WholeStream, time.Second, pipe{recv: time.Hour}, oneByOne,
			spillway.Result{Outcome: spillway.Ignored}},
		{"does not read until the deadline", grpcgate.WholeStream, time.Second, pipe{send: time.Hour}, oneByOne,
			spillway.Result{Outcome: spillway.Ignored, Latency: work}},
		{"does not read until the deadline, by message", grpcgate.PerMessage, time.Second, pipe{send: time.Hour}, oneByOne,
			spillway.Result{Outcome: spillway.Ignored, Latency: work}},
		{"a message that cannot be read", grpcgate.WholeStream, 0, pipe{recvErr: status.Error(codes.Internal, "")}, oneByOne,
			spillway.Result{Outcome: spillway.Ignored}},
		{"left too little time", grpcgate.WholeStream, time.Second, pipe{recv: 950 * time.Millisecond}, func(ss grpc.ServerStream) error {
			_ = ss.RecvMsg(nil)
			<-ss.Context().Done()
			return ss.Context().Err()
		}, spillway.Result{Outcome: spillway.Ignored, Latency: work}},
		{"a service that is late, then sends", grpcgate.WholeStream, time.Second, pipe{}, func(ss grpc.ServerStream) error {
			time.Sleep(2 * time.Second)
			return ss.SendMsg(nil)
		}, spillway.Result{Outcome: spillway.Failure, Latency: 2 * time.Second}},
		{"a service that hangs while it listens", grpcgate.WholeStream, time.Second, pipe{recv: time.Hour}, func(ss grpc.ServerStream) error {
			var wg sync.WaitGroup
			wg.Go(func() { _ = ss.RecvMsg(nil) })
			synctest.Wait()
			_ = ss.SendMsg(nil)
			wg.Wait()
			return ss.Context().Err()
		}, spillway.Result{Outcome: spillway.Failure, Latency: time.Second}},
		{"the end of what the client sends", grpcgate.WholeStream, 0, pipe{recv: time.Second, recvErr: io.EOF}, func(ss grpc.ServerStream) error {
			require.ErrorIs(t, ss.RecvMsg(nil), io.EOF)
			return status.Error(codes.Unavailable, "broken")
		}, spillway.Result{Outcome: spillway.Failure}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				require.Equal(t, c.want, streamResult(t, c.mode, c.timeout, &c.stream, c.handler))
			})
		})
	}
}

// clientResult is what a policy learns of a stream of a client.
func clientResult(t *testing.T, mode grpcgate.StreamMode, timeout time.Duration, desc grpc.StreamDesc, s *pipe, use func(grpc.ClientStream)) spillway.Result {
	t.Helper()
	p := &gatetest.Recorder{}
	o := clientMode(mode)
	o.Request = func(context.Context, *grpc.ClientConn, string) spillway.Request { return spillway.Request{} }
	c := gatedClient(t, o, p)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	s.ctx = ctx
	stream, err := c.Stream(ctx, &desc, nil, upMethod, streamer(func() (grpc.ClientStream, error) { return &clientPipe{s}, nil }))
	require.NoError(t, err)
	use(stream)
	cancel()
	synctest.Wait()
	require.Zero(t, p.InFlight())
	return p.Results()[len(p.Results())-1]
}

// clientPipe is a pipe as a ClientStream.
type clientPipe struct{ *pipe }

func (s *clientPipe) Header() (metadata.MD, error) { return nil, nil }
func (s *clientPipe) Trailer() metadata.MD         { return nil }
