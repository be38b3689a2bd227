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
	"google.golang.org/grpc/tap"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

// A method is one of a server without a network, that takes its time.
type method struct {
	s     *grpcgate.Server
	name  string
	takes time.Duration
	ran   int
}

// call makes one call that has so much time left, or no deadline if that is 0.
func (m *method) call(left time.Duration) error {
	ctx := context.Background()
	if left > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	}
	return m.handle(ctx)
}

func (m *method) handle(ctx context.Context) error {
	_, err := m.s.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: m.name}, func(ctx context.Context, _ any) (any, error) {
		m.ran++
		select {
		case <-time.After(m.takes):
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	return err
}

// taught returns a method that is known to take 50 ms.
func taught(t *testing.T, o *grpcgate.Options, p spillway.Policy) *method {
	t.Helper()
	m := &method{s: gated(t, o, p), name: echoMethod, takes: 50 * time.Millisecond}
	for range 20 {
		require.NoError(t, m.call(0))
	}
	m.ran = 0
	return m
}

func TestWhatCannotFinishIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatetest.Recorder{}
		m := taught(t, nil, p)
		began := time.Now()
		err := m.call(49 * time.Millisecond) // the first is a probe
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, spillway.ErrRejected)
		require.Equal(t, 1, m.ran)
		require.Equal(t, 49*time.Millisecond, time.Since(began))

		err = m.call(49 * time.Millisecond)
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		require.ErrorIs(t, err, spillway.ErrRejected)
		require.ErrorContains(t, err, "too little time is left")
		require.Equal(t, spillway.Ignored, grpcgate.DefaultOutcome(err))
		require.Equal(t, 1, m.ran)
		require.Equal(t, int64(1), m.s.Stats().TooLate)
		require.Equal(t, 49*time.Millisecond, time.Since(began), "at once")

		require.NoError(t, m.call(51*time.Millisecond))
		require.NoError(t, m.call(0))
		(&method{s: m.s, name: "/test.Test/Other"}).call(time.Millisecond)
		require.Equal(t, int64(1), m.s.Stats().TooLate, "each method has a latency of its own")
		require.Zero(t, p.InFlight())
	})
}

func TestLateCallsCanBeAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := taught(t, &grpcgate.Options{AdmitLate: true}, admitter{})
		for range 5 {
			require.NotErrorIs(t, m.call(time.Millisecond), spillway.ErrRejected)
		}
		require.Equal(t, 5, m.ran)
	})
}

func TestDeadlineByTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left time.Duration
		m := taught(t, &grpcgate.Options{Call: func(context.Context, string) grpcgate.Call {
			if left == 0 {
				return grpcgate.Call{}
			}
			return grpcgate.Call{Deadline: time.Now().Add(left)}
		}}, admitter{})
		left = 10 * time.Millisecond
		require.NoError(t, m.call(0), "a probe, which the deadline does not end")
		require.ErrorIs(t, m.call(0), spillway.ErrRejected)
		require.ErrorIs(t, m.call(time.Hour), spillway.ErrRejected, "the earlier one counts")
		left = time.Hour
		require.ErrorIs(t, m.call(10*time.Millisecond), spillway.ErrRejected, "the earlier one counts")
	})
}

func TestTapRefusesWhatIsTooLateAndLetsProbesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := taught(t, nil, admitter{})
		// call goes through the tap, as a call of a real server does.
		call := func() (refusedByTap, refused bool) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			ctx, err := m.s.Tap(ctx, &tap.Info{FullMethodName: echoMethod})
			if err != nil {
				require.Equal(t, codes.DeadlineExceeded, status.Code(err))
				return true, true
			}
			err = m.handle(ctx)
			require.NotErrorIs(t, err, spillway.ErrRejected, "a probe of the tap is one of the interceptor")
			return false, err != nil
		}
		var probes int
		for range 100 {
			if byTap, _ := call(); !byTap {
				probes++
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, probes, m.ran)
		require.Positive(t, probes)
		require.Less(t, probes, 20)
		stats := m.s.Stats()
		require.Equal(t, int64(100-probes), stats.Tapped)
		require.Equal(t, int64(100-probes), stats.TooLate)

		m.takes = time.Millisecond
		for tries := 0; ; tries++ {
			if byTap, _ := call(); !byTap && m.s.Stats().TooLate == int64(100-probes)+int64(tries) {
				break // admitted without being a probe, or the last of those that taught it
			}
			require.Less(t, tries, 10000, "a method that became faster is let in again")
			time.Sleep(10 * time.Millisecond)
		}
	})
}

func TestTapOfAContextThatHasEnded(t *testing.T) {
	p := &gatetest.Recorder{}
	s := gated(t, nil, p)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := s.Tap(ctx, &tap.Info{FullMethodName: echoMethod})
	require.NoError(t, err, "gRPC answers it itself")
	require.Empty(t, p.Requests())
}
