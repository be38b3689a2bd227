package grpcgate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

// A play is what a handler does, one step after the other, and how it ends.
type play struct {
	steps []string
	end   error
	panic bool
}

func randomPlay(rng *rand.Rand) play {
	var p play
	for range rng.IntN(5) {
		p.steps = append(p.steps, []string{"set header", "send header", "set trailer", "send", "receive", "send garbage"}[rng.IntN(6)])
	}
	switch n := rng.IntN(24); {
	case n <= int(codes.Unauthenticated):
		p.end = status.Error(codes.Code(n), "as played")
	case n == 17:
		p.end = errors.New("plain")
	case n == 18:
		p.end = fmt.Errorf("wrapped: %w", status.Error(codes.NotFound, "inside"))
	case n == 19:
		s, _ := status.New(codes.Unavailable, "later").WithDetails(&errdetails.RetryInfo{})
		p.end = s.Err()
	case n == 20:
		p.end = context.DeadlineExceeded
	case n == 21:
		p.panic = true
	}
	return p
}

// perform plays p on a stream, which is nil in a unary call.
func (p *play) perform(ctx context.Context, ss grpc.ServerStream) error {
	md := metadata.Pairs("played", strings.Join(p.steps, ","))
	for _, step := range p.steps {
		var err error
		switch {
		case step == "set header":
			err = grpc.SetHeader(ctx, md)
		case step == "send header":
			err = grpc.SendHeader(ctx, md)
		case step == "set trailer":
			err = grpc.SetTrailer(ctx, md)
		case ss == nil:
		case step == "send":
			err = send(ss, "hello")
		case step == "receive":
			_, err = receive(ss)
		case step == "send garbage":
			err = send(ss, "\xff")
		}
		_ = err // a handler may go on
	}
	if p.panic {
		panic("as played")
	}
	return p.end
}

// observe makes a call and returns all that its client sees.
func (p *play) observe(conn *grpc.ClientConn, method string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if method == echoMethod {
		var header, trailer metadata.MD
		answer, err := echo(ctx, conn, "hello", grpc.Header(&header), grpc.Trailer(&trailer))
		return fmt.Sprintf("%q %v %v %v", answer, status.Convert(err).Proto(), header["played"], trailer)
	}
	stream, err := openStream(ctx, conn, method)
	if err != nil {
		return err.Error()
	}
	_ = send(stream, "hello")
	if method != downMethod {
		_ = send(stream, "hello")
	}
	_ = stream.CloseSend()
	var all []string
	for err == nil {
		var answer string
		if answer, err = receive(stream); err == nil {
			all = append(all, answer)
		}
	}
	header, _ := stream.Header()
	return fmt.Sprintf("%q %v %v %v", all, status.Convert(err).Proto(), header["played"], stream.Trailer())
}

// played serves what p points to.
func played(p **play) *service {
	stream := func(ss grpc.ServerStream) error { return (*p).perform(ss.Context(), ss) }
	return &service{
		echo: func(ctx context.Context, _ string) (string, error) { return "answer", (*p).perform(ctx, nil) },
		down: func(_ string, ss grpc.ServerStream) error { return stream(ss) },
		chat: stream,
	}
}

// Random handlers answer the same with and without the gates of server and client, and what the policies learn is what
// the handler did.
func TestGatesChangeNoAnswer(t *testing.T) {
	plays := 1000
	if raceEnabled {
		plays = 150
	}
	recovered := []grpc.ServerOption{grpc.ChainUnaryInterceptor(recovering), grpc.ChainStreamInterceptor(recoveringStream)}
	for name, mode := range streamModes {
		t.Run(name, func(t *testing.T) {
			var now *play
			seen := &gatetest.Recorder{}
			s := gated(t, &grpcgate.Options{Stream: always(mode)}, seen)
			bare := start(t, false, played(&now), recovered, nil)
			gates := start(t, false, played(&now), append(slices.Clone(recovered),
				grpc.ChainUnaryInterceptor(s.Unary), grpc.ChainStreamInterceptor(s.Stream), grpc.InTapHandle(s.Tap)),
				through(gatedClient(t, clientMode(mode), admitter{})))
			rng := rand.New(rand.NewPCG(7, 7))
			for range plays {
				p := randomPlay(rng)
				now = &p
				method := []string{echoMethod, downMethod, chatMethod}[rng.IntN(3)] // an upload with two answers is a race already
				want := p.observe(bare, method)
				before := len(seen.Outcomes())
				require.Equal(t, want, p.observe(gates, method), "%s %+v", method, p)
				require.Eventually(t, func() bool { return seen.InFlight() == 0 && s.Stats().Streams == 0 }, 20*time.Second, 100*time.Microsecond)
				checkBooked(t, &p, method, mode, seen.Outcomes()[before:])
			}
		})
	}
}

// checkBooked checks the outcome of p, which follows what the tap has given back.
func checkBooked(t *testing.T, p *play, method string, mode grpcgate.StreamMode, got []spillway.Outcome) {
	t.Helper()
	require.Equal(t, spillway.Refused, got[0], "the tap")
	want := spillway.Failure
	if !p.panic {
		want = grpcgate.DefaultOutcome(p.end)
	}
	switch {
	case method == echoMethod:
		require.Equal(t, want, got[1], "%+v", p)
	case mode != grpcgate.WholeStream:
		require.Equal(t, spillway.Ignored, got[1], "%+v", p)
	case slices.Contains(p.steps, "send garbage") && p.panic:
		require.Contains(t, []spillway.Outcome{spillway.Ignored, want}, got[1], "the client may be gone already: %+v", p)
	case slices.Contains(p.steps, "send garbage"):
		require.Equal(t, spillway.Ignored, got[1], "the stream was broken by what it sent: %+v", p)
	default:
		require.Equal(t, want, got[1], "%s %+v", method, p)
	}
}
