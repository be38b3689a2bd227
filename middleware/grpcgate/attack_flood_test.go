package grpcgate_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

const (
	maxConcurrent = 20  // streams that the victim allows on a connection
	frames        = 500 // of each flood
)

// A pupil is a Policy that remembers how the calls of a stranger ended. It admits everything.
type pupil struct{ gatetest.Recorder }

func (p *pupil) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	if r.Key != "mallory" {
		res = spillway.Result{}
	}
	p.Recorder.Done(r, t, res)
}

// floods are attacks on a connection with frames that cost next to nothing. None of the calls ever gets its answer.
func floods() map[string]func(c *rawConn) {
	flood := func(f func(c *rawConn, id uint32)) func(c *rawConn) {
		return func(c *rawConn) {
			id := c.call(echoMethod)
			c.plain(id, true, text("hang"))
			for range frames {
				f(c, id)
			}
		}
	}
	resets := func(method string, end bool) func(c *rawConn) {
		return func(c *rawConn) {
			for range frames {
				id := c.call(method)
				c.plain(id, end, text("hang"))
				_ = c.WriteRSTStream(id, http2.ErrCodeCancel)
			}
		}
	}
	return map[string]func(c *rawConn){
		"rapid resets of calls":       resets(echoMethod, true),
		"rapid resets of streams":     resets(downMethod, true),
		"rapid resets of uploads":     resets(upMethod, false),
		"rapid resets of half a call": resets(echoMethod, false),
		// The server resets these streams, and has to go on counting them until it has.
		"calls that make the server reset them": func(c *rawConn) {
			for range frames {
				id := c.call(echoMethod)
				c.plain(id, true, text("hang"))
				_ = c.WriteWindowUpdate(id, 0)
			}
		},
		"pings":                flood(func(c *rawConn, _ uint32) { _ = c.WritePing(false, [8]byte{}) }),
		"answers to no ping":   flood(func(c *rawConn, _ uint32) { _ = c.WritePing(true, [8]byte{}) }),
		"settings":             flood(func(c *rawConn, _ uint32) { _ = c.WriteSettings() }),
		"priorities":           flood(func(c *rawConn, id uint32) { _ = c.WritePriority(id, http2.PriorityParam{Weight: 1}) }),
		"resets of one stream": flood(func(c *rawConn, id uint32) { _ = c.WriteRSTStream(id, http2.ErrCodeCancel) }),
		"windows":              flood(func(c *rawConn, _ uint32) { _ = c.WriteWindowUpdate(0, 1) }),
		"GOAWAY": flood(func(c *rawConn, _ uint32) {
			_ = c.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte("too_many_pings"))
		}),
		"data of no length":        emptyData,
		"more streams than agreed": manyCalls,
	}
}

// emptyData sends an upload that never gets further.
func emptyData(c *rawConn) {
	id := c.call(upMethod)
	for range frames {
		_ = c.WriteData(id, false, nil)
	}
}

// manyCalls opens more streams at once than the server allows, of which none ends.
func manyCalls(c *rawConn) {
	for range frames {
		c.plain(c.call(echoMethod), true, text("hang"))
	}
}

// Floods of frames neither keep innocent callers from their answers, while they last and after them, nor open a breaker, nor
// teach a latency, nor leave anything behind.
func TestFloodsOfFrames(t *testing.T) {
	for name, flood := range floods() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen, brk := &pupil{}, spillway.Must(breaker.New(nil))
			s := gated(t, &grpcgate.Options{Stream: always(grpcgate.WholeStream), Request: callOfTenant, MaxStreams: 100}, seen, brk)
			conn := start(t, true, victim(), append(behind(s), grpc.InTapHandle(s.Tap), grpc.MaxConcurrentStreams(maxConcurrent)), nil,
				func(srv *grpc.Server) { healthpb.RegisterHealthServer(srv, health.NewServer()) })
			before := innocent(t, conn)

			var strangers sync.WaitGroup
			var waiting []*rawConn
			for range 3 {
				c := dialRaw(t, conn.Target())
				waiting = append(waiting, c)
				strangers.Go(func() {
					flood(c)
					c.settle()
				})
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				strangers.Wait()
			}()
			for over := false; !over; {
				require.Equal(t, before, innocent(t, conn), "while it lasts")
				select {
				case <-done:
					over = true
				default:
				}
			}
			require.Equal(t, before, innocent(t, conn), "while they wait")
			for _, c := range waiting {
				c.hangUp()
			}
			require.Eventually(t, func() bool { return seen.InFlight() == 0 && s.Stats().Streams == 0 }, 30*time.Second, time.Millisecond)
			require.Equal(t, before, innocent(t, conn), "after it")
			require.Equal(t, breaker.Closed, brk.Stats().State)
			for _, o := range seen.Outcomes() { // the tap asks and gives back at once
				require.Contains(t, []spillway.Outcome{spillway.Ignored, spillway.Refused}, o)
			}
		})
	}
}

// A client that fills all streams of its connection keeps nobody else waiting, and only its own calls wait for one to end.
func TestConcurrentStreamsOfAStranger(t *testing.T) {
	seen := &pupil{}
	s := gated(t, &grpcgate.Options{Stream: always(grpcgate.WholeStream), Request: callOfTenant}, seen)
	conn := start(t, true, victim(), append(behind(s), grpc.MaxConcurrentStreams(maxConcurrent)), nil,
		func(srv *grpc.Server) { healthpb.RegisterHealthServer(srv, health.NewServer()) })
	before := innocent(t, conn)
	admitted := len(seen.Requests())
	attacker := dial(t, conn.Target())
	ctx, cancel := context.WithCancel(as("mallory"))
	var calls sync.WaitGroup
	for range 2 * maxConcurrent {
		calls.Go(func() { _, _ = echo(ctx, attacker, "hang") })
	}
	require.Eventually(t, func() bool { return seen.InFlight() == maxConcurrent }, 30*time.Second, time.Millisecond)
	require.Equal(t, before, innocent(t, conn), "while they are open")
	require.Equal(t, maxConcurrent, seen.InFlight(), fmt.Sprint(len(seen.Requests())-admitted, " admitted"))
	cancel()
	calls.Wait()
	require.Eventually(t, func() bool { return seen.InFlight() == 0 }, 30*time.Second, time.Millisecond)
	for _, o := range seen.Outcomes() {
		require.Equal(t, spillway.Ignored, o)
	}
}
