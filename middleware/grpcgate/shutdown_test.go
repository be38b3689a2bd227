package grpcgate_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

// A shutdown ends calls that run, those that wait in a queue and streams, at once. It is a failure of none of them.
func TestStop(t *testing.T) {
	p := &gatetest.Recorder{}
	queue := spillway.Must(limiter.New(limiter.Queue{Limit: 2, MaxQueue: 100, MaxWait: time.Minute}))
	s := gated(t, &grpcgate.Options{Stream: func(m string) grpcgate.StreamMode {
		return map[string]grpcgate.StreamMode{downMethod: grpcgate.WholeStream}[m]
	}}, queue, p)
	var srv *grpc.Server
	conn := start(t, true, victim(), behind(s), nil, func(server *grpc.Server) { srv = server })
	chat := openChat(context.Background(), t, conn)
	errs := make(chan error)
	for i := range 8 {
		go func() {
			errs <- drain(context.Background(), conn, []string{echoMethod, downMethod}[i%2], text("hang"))
		}()
	}
	require.Eventually(t, func() bool { return p.InFlight() == 2 && queue.Stats().Waiting == 6 }, 20*time.Second, time.Millisecond)
	srv.Stop()
	for range 8 {
		require.Equal(t, codes.Unavailable, status.Code(<-errs))
	}
	_, err := receive(chat)
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.Eventually(t, func() bool { return s.Stats().Streams == 0 && queue.Stats().InFlight == 0 }, 20*time.Second, time.Millisecond)
	// The chat and two of the eight; one that waits may still get the place of another, and is stopped then.
	require.Eventually(t, func() bool { return len(p.Outcomes()) >= 3 && p.InFlight() == 0 }, 10*time.Second, time.Millisecond)
	for _, o := range p.Outcomes() {
		require.Equal(t, spillway.Ignored, o)
	}
}

// A server that drains finishes what it has admitted, and what waits in its queue.
func TestGracefulStop(t *testing.T) {
	p := &gatetest.Recorder{}
	queue := spillway.Must(limiter.New(limiter.Queue{Limit: 1, MaxQueue: 100, MaxWait: time.Minute}))
	s := gated(t, nil, queue, p)
	release := make(chan struct{})
	var srv *grpc.Server
	conn := start(t, true, &service{echo: func(_ context.Context, text string) (string, error) { <-release; return text, nil }},
		behind(s), nil, func(server *grpc.Server) { srv = server })
	errs := make(chan error)
	for range 4 {
		go func() {
			_, err := echo(context.Background(), conn, "hello")
			errs <- err
		}()
	}
	require.Eventually(t, func() bool { return p.InFlight() == 1 && queue.Stats().Waiting == 3 }, 20*time.Second, time.Millisecond)
	stopped := make(chan struct{})
	go func() { srv.GracefulStop(); close(stopped) }()
	close(release)
	for range 4 {
		require.NoError(t, <-errs)
	}
	<-stopped
	awaitOutcomes(t, p, spillway.Success, spillway.Success, spillway.Success, spillway.Success)
}

// A client that pings more often than the server allows loses its connection and the calls on it. They count as calls whose
// client is gone, and other connections do not notice.
func TestTooManyPings(t *testing.T) {
	p := &gatetest.Recorder{}
	s := gated(t, &grpcgate.Options{Stream: always(grpcgate.WholeStream)}, p)
	conn := start(t, true, victim(), append(behind(s), grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Hour})), nil)
	other := openChat(context.Background(), t, dial(t, conn.Target()))
	attacker := dialRaw(t, conn.Target())
	attacker.plain(attacker.call(echoMethod), true, text("hang"))
	attacker.plain(attacker.call(downMethod), true, text("hang"))
	require.Eventually(t, func() bool { return p.InFlight() == 3 }, 20*time.Second, time.Millisecond)
	for range 10 {
		_ = attacker.WritePing(false, [8]byte{})
	}
	<-attacker.ended
	require.Eventually(t, func() bool { return p.InFlight() == 1 }, 20*time.Second, time.Millisecond)
	require.Equal(t, []spillway.Outcome{spillway.Ignored, spillway.Ignored}, p.Outcomes())
	say(t, other, "still here")
}

// A server whose keepalive finds a client dead ends its calls, and that is no failure of the service.
func TestDeadClientIsFoundByKeepalive(t *testing.T) {
	p := &gatetest.Recorder{}
	s := gated(t, &grpcgate.Options{Stream: always(grpcgate.WholeStream)}, p)
	conn := start(t, true, victim(), append(behind(s),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Second, Timeout: 100 * time.Millisecond})), nil)
	dead := dialRaw(t, conn.Target()) // it acknowledges no ping
	dead.plain(dead.call(echoMethod), true, text("hang"))
	dead.plain(dead.call(upMethod), false, text("a"))
	awaitOutcomes(t, p, spillway.Ignored, spillway.Ignored)
	<-dead.ended
}
