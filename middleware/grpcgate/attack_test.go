package grpcgate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

const (
	attempts    = 15 // of each attack: more than opens a breaker
	atOnce      = 15
	messageSize = 1 << 16 // the limits of the victim
)

// victim is a service that does what its callers ask for, as services do.
func victim() *service {
	var calls atomic.Int64
	return &service{
		echo: func(ctx context.Context, text string) (string, error) { return obey(ctx, text, &calls) },
		down: func(text string, s grpc.ServerStream) error {
			for range 3 {
				answer, err := obey(s.Context(), text, &calls)
				if err != nil {
					return err
				}
				if err := send(s, answer); err != nil {
					return fmt.Errorf("down: %w", err)
				}
			}
			return nil
		},
		up: func(s grpc.ServerStream) error {
			for {
				switch _, err := receive(s); {
				case errors.Is(err, io.EOF):
					return send(s, "done")
				case err != nil:
					return status.Errorf(codes.Internal, "up: %v", err) // many handlers hide the cause
				}
			}
		},
	}
}

func obey(ctx context.Context, text string, calls *atomic.Int64) (string, error) {
	verb, rest, _ := strings.Cut(text, " ")
	switch verb {
	case "slow": // mostly 300 ms, sometimes 20
		d := 300 * time.Millisecond
		if calls.Add(1)%5 == 0 {
			d = 20 * time.Millisecond
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	case "hang":
		<-ctx.Done()
		return "", ctx.Err()
	case "big":
		return strings.Repeat("x", 2*messageSize), nil
	case "large":
		return strings.Repeat("x", messageSize/2), nil
	case "garble":
		return "\xff", nil
	case "code":
		var code codes.Code
		if err := code.UnmarshalJSON([]byte(`"` + rest + `"`)); err != nil {
			return "", err
		}
		return "", status.Error(code, "as you like it")
	}
	return text, nil
}

// as returns a context of a caller.
func as(tenant string) context.Context {
	return metadata.AppendToOutgoingContext(context.Background(), "tenant", tenant)
}

func callOfTenant(ctx context.Context, _ string) (r spillway.Request) {
	if v := metadata.ValueFromIncomingContext(ctx, "tenant"); len(v) > 0 {
		r.Key = v[0]
	}
	return r
}

// A target is a server under attack, behind a gate with a breaker that all its callers share.
type target struct {
	s    *grpcgate.Server
	seen *gatetest.Recorder
	brk  *breaker.Breaker
	conn *grpc.ClientConn
}

func newTarget(t *testing.T, mode grpcgate.StreamMode) *target {
	t.Helper()
	tg := &target{seen: &gatetest.Recorder{}, brk: spillway.Must(breaker.New(nil))}
	tg.s = gated(t, &grpcgate.Options{Stream: always(mode), Request: callOfTenant, MaxStreams: 100}, tg.seen, tg.brk)
	tg.conn = start(t, true, victim(), append(behind(tg.s), grpc.InTapHandle(tg.s.Tap),
		grpc.MaxRecvMsgSize(messageSize), grpc.MaxSendMsgSize(messageSize), grpc.MaxHeaderListSize(1<<14)), nil,
		func(srv *grpc.Server) { healthpb.RegisterHealthServer(srv, health.NewServer()) })
	return tg
}

// attacker returns a connection of its own.
func (tg *target) attacker(t *testing.T, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return dial(t, tg.conn.Target(), o...)
}

// innocent returns what a well-behaved caller gets.
func innocent(t *testing.T, conn *grpc.ClientConn) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(as("alice"), 30*time.Second)
	defer cancel()
	answer, err := echo(ctx, conn, "hello")
	answers := []string{fmt.Sprint(answer, err)}
	for _, method := range []string{downMethod, upMethod, chatMethod} {
		answers = append(answers, method)
		stream, err := openStream(ctx, conn, method)
		if err != nil {
			answers = append(answers, err.Error())
			continue
		}
		_ = send(stream, "hello") // RecvMsg tells why not
		_ = stream.CloseSend()
		for err == nil {
			answer, err = receive(stream)
			answers = append(answers, fmt.Sprint(answer, err))
		}
	}
	checked, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return append(answers, fmt.Sprint(checked.GetStatus(), err))
}

// repeat does f as often as an attack takes, some at a time.
func repeat(f func(i int)) {
	var wg sync.WaitGroup
	var next atomic.Int64
	for range atOnce {
		wg.Go(func() {
			for i := next.Add(1); i <= attempts; i = next.Add(1) {
				f(int(i))
			}
		})
	}
	wg.Wait()
}

var streamModes = map[string]grpcgate.StreamMode{
	"whole": grpcgate.WholeStream, "per message": grpcgate.PerMessage, "detach": grpcgate.DetachStream,
}

// After none of these attacks does an innocent caller get another answer than before.
func TestAttacksOnAServer(t *testing.T) {
	attacks := serverAttacks()
	require.GreaterOrEqual(t, len(attacks), 40)
	for mode, m := range streamModes {
		if raceEnabled && m == grpcgate.DetachStream {
			continue // it takes minutes, and has little to race for
		}
		for name, attack := range attacks {
			t.Run(mode+"/"+name, func(t *testing.T) {
				t.Parallel()
				tg := newTarget(t, m)
				before := innocent(t, tg.conn)
				attack(t, tg)
				require.Equal(t, before, innocent(t, tg.conn))
				require.Equal(t, breaker.Closed, tg.brk.Stats().State)
				require.Eventually(t, func() bool {
					return tg.seen.InFlight() == 0 && tg.s.Stats().Streams == 0 && tg.s.Stats().ExemptStreams == 0
				}, time.Minute, 5*time.Millisecond, "nothing is left behind")
				require.NotContains(t, tg.seen.Outcomes(), spillway.Failure)
			})
		}
	}
}
