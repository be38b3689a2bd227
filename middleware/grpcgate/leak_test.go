package grpcgate_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

// misbehave does what text, a number, says: it answers, waits, fails, panics or exits the goroutine.
func misbehave(ctx context.Context, text string) error {
	n, _ := strconv.Atoi(text)
	switch n % 16 {
	case 0:
		panic("boom")
	case 1:
		runtime.Goexit()
	case 2, 3:
		return status.Error(codes.Internal, "oops")
	case 4, 5, 6:
		<-ctx.Done()
		return ctx.Err()
	case 7, 8:
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(n%5) * time.Millisecond):
		}
	}
	return nil
}

// misbehaving answers, waits, fails, panics and exits by the message.
func misbehaving() *service {
	stream := func(s grpc.ServerStream) error {
		for {
			text, err := receive(s)
			if err != nil {
				return nil //nolint:nilerr // at its end a stream has gone well
			}
			if err := misbehave(s.Context(), text); err != nil {
				return err
			}
			if err := send(s, text); err != nil {
				return err
			}
		}
	}
	return &service{
		echo: func(ctx context.Context, text string) (string, error) { return text, misbehave(ctx, text) },
		chat: stream,
		down: func(text string, s grpc.ServerStream) error {
			if err := misbehave(s.Context(), text); err != nil {
				return err
			}
			return send(s, text)
		},
	}
}

// someCall makes one call of whatever kind, and reads as much of the answer as it pleases.
func someCall(rng *rand.Rand, conn *grpc.ClientConn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rng.IntN(30))*time.Millisecond)
	defer cancel()
	if rng.IntN(4) == 0 {
		time.AfterFunc(time.Duration(rng.IntN(10))*time.Millisecond, cancel)
	}
	text := strconv.Itoa(rng.IntN(1000))
	method := []string{echoMethod, downMethod, chatMethod}[rng.IntN(3)]
	if method == echoMethod {
		_, _ = echo(ctx, conn, text)
		return
	}
	stream, err := openStream(ctx, conn, method)
	if err != nil {
		return
	}
	defer func() { // held until the call ends: a stream that nobody holds is a leak
		cancel()
		runtime.KeepAlive(stream)
	}()
	for range 1 + rng.IntN(3) {
		_ = send(stream, text)
		if rng.IntN(3) > 0 {
			_, _ = receive(stream)
		}
	}
	if rng.IntN(2) == 0 {
		_ = stream.CloseSend()
		_, _ = receive(stream)
	}
}

func TestNothingIsInFlightAtTheEnd(t *testing.T) {
	const workers, calls = 8, 60
	for mode, name := range map[grpcgate.StreamMode]string{
		grpcgate.DetachStream: "detach", grpcgate.PerMessage: "per message", grpcgate.WholeStream: "whole",
	} {
		t.Run(name, func(t *testing.T) {
			serverSide := spillway.Must(limiter.New(limiter.Concurrency{Limit: workers / 2}))
			clientSide := spillway.Must(limiter.New(limiter.Concurrency{Limit: workers - 1}))
			s := gated(t, &grpcgate.Options{Stream: always(mode), MaxStreams: workers / 2}, serverSide)
			c := gatedClient(t, &grpcgate.ClientOptions{Stream: always(mode), MaxStreams: workers / 2}, clientSide)
			conn := start(t, mode == grpcgate.WholeStream, misbehaving(), []grpc.ServerOption{
				grpc.ChainUnaryInterceptor(recovering, s.Unary), grpc.ChainStreamInterceptor(recoveringStream, s.Stream),
				grpc.InTapHandle(s.Tap),
			}, through(c))
			var wg sync.WaitGroup
			for i := range workers {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(1, uint64(i)))
					for range calls {
						someCall(rng, conn)
					}
				})
			}
			wg.Wait()
			require.Eventually(t, func() bool {
				return serverSide.Stats().InFlight == 0 && clientSide.Stats().InFlight == 0 &&
					s.Stats().Streams == 0 && c.Stats().Streams == 0
			}, 20*time.Second, time.Millisecond)
			require.Zero(t, c.Stats().Leaked)
		})
	}
}
