package grpcgate_test

import (
	"context"
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

func TestClientStreamsDoNotBlameTheServer(t *testing.T) {
	const pause = 250 * time.Millisecond // of the caller
	download := grpc.StreamDesc{ServerStreams: true}
	upload := grpc.StreamDesc{ClientStreams: true}
	chat := grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	for _, c := range []struct {
		name    string
		mode    grpcgate.StreamMode
		timeout time.Duration
		desc    grpc.StreamDesc
		stream  pipe
		use     func(grpc.ClientStream)
		want    spillway.Result
	}{
		{"a caller that reads slowly", grpcgate.WholeStream, 0, download, pipe{recv: 10 * time.Millisecond, end: 3}, func(s grpc.ClientStream) {
			_ = s.SendMsg(nil)
			_ = s.CloseSend()
			for s.RecvMsg(nil) == nil {
				time.Sleep(pause)
			}
		}, spillway.Result{Outcome: spillway.Success, Latency: 30 * time.Millisecond}},
		{"a caller that begins late", grpcgate.DetachStream, 0, download, pipe{recv: 10 * time.Millisecond}, func(s grpc.ClientStream) {
			time.Sleep(pause)
			_ = s.SendMsg(nil)
			time.Sleep(pause)
			_ = s.RecvMsg(nil)
		}, spillway.Result{Outcome: spillway.Success, Latency: 10 * time.Millisecond}},
		{"a caller that listens before it speaks", grpcgate.DetachStream, 0, chat, pipe{recv: pause + 10*time.Millisecond}, func(s grpc.ClientStream) {
			go func() {
				time.Sleep(pause)
				_ = s.SendMsg(nil)
			}()
			_ = s.RecvMsg(nil)
		}, spillway.Result{Outcome: spillway.Success, Latency: 10 * time.Millisecond}},
		{"a server that is slow to take it", grpcgate.WholeStream, 0, upload, pipe{send: time.Second, recv: time.Second}, func(s grpc.ClientStream) {
			_ = s.SendMsg(nil)
			time.Sleep(pause)
			_ = s.SendMsg(nil)
			_ = s.CloseSend()
			_ = s.RecvMsg(nil)
		}, spillway.Result{Outcome: spillway.Success, Latency: 3 * time.Second}},
		{"a message that is answered", grpcgate.PerMessage, 0, chat, pipe{send: 10 * time.Millisecond, recv: 10 * time.Millisecond}, func(s grpc.ClientStream) {
			for range 2 {
				_ = s.SendMsg(nil)
				time.Sleep(pause)
				_ = s.RecvMsg(nil)
				time.Sleep(pause)
			}
		}, spillway.Result{Outcome: spillway.Success, Latency: 20 * time.Millisecond}},
		{"a server that hangs", grpcgate.WholeStream, time.Second, download, pipe{recv: time.Hour}, func(s grpc.ClientStream) {
			_ = s.SendMsg(nil)
			_ = s.CloseSend()
			_ = s.RecvMsg(nil)
		}, spillway.Result{Outcome: spillway.Failure, Latency: time.Second}},
		{"one that got a single message", grpcgate.WholeStream, time.Second, download, pipe{recv: time.Hour}, func(s grpc.ClientStream) {
			_ = s.SendMsg(nil)
			_ = s.RecvMsg(nil)
		}, spillway.Result{Outcome: spillway.Failure, Latency: time.Second}},
		{"a server that does not take it", grpcgate.WholeStream, time.Second, upload, pipe{send: time.Hour}, func(s grpc.ClientStream) {
			_ = s.SendMsg(nil)
		}, spillway.Result{Outcome: spillway.Failure, Latency: time.Second}},
		{"a server that does not take it, as RecvMsg tells", grpcgate.WholeStream, time.Second, upload, pipe{send: time.Hour, lost: true}, func(s grpc.ClientStream) {
			_ = s.SendMsg(nil)
			_ = s.RecvMsg(nil)
		}, spillway.Result{Outcome: spillway.Failure, Latency: time.Second}},
		{"a server that does not take it, and nobody asks why", grpcgate.WholeStream, time.Second, upload, pipe{send: time.Hour, lost: true}, func(s grpc.ClientStream) {
			_ = s.SendMsg(nil)
			time.Sleep(time.Minute) // the context of the call goes on
		}, spillway.Result{Outcome: spillway.Failure, Latency: time.Second}},
		{"a caller that does not read", grpcgate.WholeStream, time.Second, download, pipe{recv: time.Hour}, func(s grpc.ClientStream) {
			_ = s.SendMsg(nil)
			_ = s.CloseSend()
			time.Sleep(time.Minute)
		}, spillway.Result{Outcome: spillway.Ignored, Latency: time.Second}},
		{"a server that took long to take it, before", grpcgate.WholeStream, time.Second, upload, pipe{send: 500 * time.Millisecond, recv: time.Hour}, func(s grpc.ClientStream) {
			_ = s.SendMsg(nil)
			_ = s.RecvMsg(nil)
		}, spillway.Result{Outcome: spillway.Ignored, Latency: time.Second}},
		{"a server that does not answer a message", grpcgate.PerMessage, time.Second, chat, pipe{recv: time.Hour}, func(s grpc.ClientStream) {
			_ = s.SendMsg(nil)
			_ = s.RecvMsg(nil)
		}, spillway.Result{Outcome: spillway.Failure, Latency: time.Second}},
		{"an upload that is not complete", grpcgate.PerMessage, time.Second, upload, pipe{recv: time.Hour}, func(s grpc.ClientStream) {
			_ = s.SendMsg(nil)
			_ = s.RecvMsg(nil)
		}, spillway.Result{Outcome: spillway.Ignored, Latency: time.Second}},
		{"a caller that says nothing", grpcgate.WholeStream, time.Second, chat, pipe{recv: time.Hour}, func(s grpc.ClientStream) {
			_ = s.RecvMsg(nil)
		}, spillway.Result{Outcome: spillway.Ignored, Latency: time.Second}},
		{"a caller that ends too late", grpcgate.WholeStream, time.Second, upload, pipe{recv: time.Hour}, func(s grpc.ClientStream) {
			_ = s.SendMsg(nil)
			time.Sleep(950 * time.Millisecond)
			_ = s.CloseSend()
			_ = s.RecvMsg(nil)
		}, spillway.Result{Outcome: spillway.Ignored, Latency: 50 * time.Millisecond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				require.Equal(t, c.want, clientResult(t, c.mode, c.timeout, c.desc, &c.stream, c.use))
			})
		})
	}
}

// A stream for which there is no connection until its deadline says that the server is down.
func TestClientStreamThatWaitsForAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatetest.Recorder{}
		c := gatedClient(t, &grpcgate.ClientOptions{
			Request: func(context.Context, *grpc.ClientConn, string) spillway.Request { return spillway.Request{} },
		}, p)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := c.Stream(ctx, &grpc.StreamDesc{ClientStreams: true}, nil, chatMethod, streamer(func() (grpc.ClientStream, error) {
			<-ctx.Done()
			return nil, status.FromContextError(ctx.Err()).Err()
		}))
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		require.Equal(t, []spillway.Result{{Outcome: spillway.Failure, Latency: time.Second}}, p.Results())
	})
}

// A client learns how long the calls to a method take, from those that went well.
func TestClientMinBudgetIsThatOfTheMethod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatetest.Recorder{}
		c := gatedClient(t, &grpcgate.ClientOptions{
			Request: func(context.Context, *grpc.ClientConn, string) spillway.Request { return spillway.Request{} },
		}, p)
		unary := func(takes, timeout time.Duration, answer error) spillway.Outcome {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			_ = c.Unary(ctx, echoMethod, nil, nil, nil, invoke(func(ctx context.Context) error {
				select {
				case <-time.After(takes):
					return answer
				case <-ctx.Done():
					return status.FromContextError(ctx.Err()).Err()
				}
			}))
			return p.Outcomes()[len(p.Outcomes())-1]
		}
		require.Equal(t, spillway.Failure, unary(time.Hour, 130*time.Millisecond, nil), "nothing is known")
		for range 100 {
			require.Equal(t, spillway.Success, unary(300*time.Millisecond, time.Hour, nil))
		}
		require.Equal(t, spillway.Ignored, unary(time.Hour, 130*time.Millisecond, nil))
		for range 1000 {
			require.Equal(t, spillway.Success, unary(time.Millisecond, time.Hour, status.Error(codes.NotFound, "")))
		}
		require.Equal(t, spillway.Ignored, unary(time.Hour, 130*time.Millisecond, nil), "bad requests teach nothing")
		require.Equal(t, spillway.Failure, unary(time.Hour, 400*time.Millisecond, nil))
	})
}

// A deadline that is noticed late, because the machine is busy, gives the server no more time.
func TestLateNoticeOfADeadlineIsNoTimeOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for allowed, want := range map[time.Duration]spillway.Outcome{
			90 * time.Millisecond: spillway.Ignored, 110 * time.Millisecond: spillway.Failure,
		} {
			p := &gatetest.Recorder{}
			c := gatedClient(t, &grpcgate.ClientOptions{
				Stream: always(grpcgate.WholeStream), MinBudget: 100 * time.Millisecond,
				Request: func(context.Context, *grpc.ClientConn, string) spillway.Request { return spillway.Request{} },
			}, p)
			ctx := slowTimer{t.Context(), time.Now().Add(allowed)}
			s, err := c.Stream(ctx, &grpc.StreamDesc{ServerStreams: true}, nil, downMethod, streamer(func() (grpc.ClientStream, error) {
				return &pipe{ctx: ctx, recv: time.Second, recvErr: status.FromContextError(context.DeadlineExceeded).Err()}, nil
			}))
			require.NoError(t, err)
			require.NoError(t, s.SendMsg(nil))
			require.Error(t, s.RecvMsg(nil))
			require.Equal(t, []spillway.Outcome{want}, p.Outcomes())
		}
	})
}

// A slowTimer is a context that has not noticed its deadline yet.
type slowTimer struct {
	context.Context
	end time.Time
}

func (c slowTimer) Deadline() (time.Time, bool) { return c.end, true }
