package grpcgate_test

import (
	"cmp"
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
	"github.com/spillway-go/spillway/deadline"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

// A method is one of a server without a network, that takes its time.
type method struct {
	s      *grpcgate.Server
	policy *deadline.Policy
	name   string
	takes  time.Duration
	ran    int
}

// refused returns how many calls were refused because of their deadline.
func (m *method) refused() int64 { return m.policy.Stats().Refused }

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

// taught returns a method that is known to take 50 ms, behind a policy of package deadline and then p.
func taught(t *testing.T, o *grpcgate.Options, p spillway.Policy) *method {
	t.Helper()
	policy := spillway.Must(deadline.New(nil))
	m := &method{s: gated(t, o, policy, p), policy: policy, name: echoMethod, takes: 50 * time.Millisecond}
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
		require.Equal(t, int64(1), m.refused())
		require.Equal(t, 49*time.Millisecond, time.Since(began), "at once")

		require.NoError(t, m.call(51*time.Millisecond))
		require.NoError(t, m.call(0))
		(&method{s: m.s, name: "/test.Test/Other"}).call(time.Millisecond)
		require.Equal(t, int64(1), m.refused(), "each method has a latency of its own")
		require.Zero(t, p.InFlight())
	})
}

// A server may shorten the time that its clients give it.
func TestTimeoutByTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left time.Duration
		p := &gatetest.Recorder{}
		m := taught(t, &grpcgate.Options{Request: func(context.Context, string) spillway.Request {
			return spillway.Request{Timeout: left}
		}}, p)
		left = 10 * time.Millisecond
		began := time.Now()
		require.ErrorIs(t, m.call(0), context.DeadlineExceeded, "a probe, which the timeout ends")
		require.Equal(t, left, time.Since(began))
		require.Equal(t, spillway.Ignored, p.Outcomes()[len(p.Outcomes())-1], "too little time")
		require.ErrorIs(t, m.call(0), spillway.ErrRejected)
		require.ErrorIs(t, m.call(time.Hour), spillway.ErrRejected, "the earlier one counts")
		left = time.Hour
		require.ErrorIs(t, m.call(10*time.Millisecond), spillway.ErrRejected, "the earlier one counts")
		require.NoError(t, m.call(0))
	})
}

// A handler that calls another service leaves it what is left of the time, also if its own server has shortened it.
func TestTheRemainingTimeIsPassedOn(t *testing.T) {
	var left time.Duration
	second := start(t, true, &service{echo: func(ctx context.Context, _ string) (string, error) {
		by, _ := ctx.Deadline()
		left = time.Until(by)
		return "", nil
	}}, nil, through(gatedClient(t, nil)))
	for _, shortened := range []time.Duration{0, 20 * time.Second} {
		s := gated(t, &grpcgate.Options{Request: func(context.Context, string) spillway.Request {
			return spillway.Request{Timeout: shortened}
		}})
		first := start(t, true, &service{echo: func(ctx context.Context, in string) (string, error) { return echo(ctx, second, in) }}, behind(s), nil)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		_, err := echo(ctx, first, "hello")
		cancel()
		require.NoError(t, err)
		most := cmp.Or(shortened, time.Minute)
		require.Greater(t, left, most/2)
		require.Less(t, left, most)
	}
}

// A handler may return the error of a call that was refused for its deadline, by a gate on the way.
func TestARefusalForTheDeadlineIsPassedOn(t *testing.T) {
	rej := &spillway.Rejection{Policy: "secret", Reason: "deadline too near", TooLate: true}
	c := gatedClient(t, nil, gatetest.Refusing(rej))
	local := c.Unary(context.Background(), echoMethod, nil, nil, &grpc.ClientConn{}, nil)
	require.Equal(t, codes.DeadlineExceeded, status.Code(local))
	require.ErrorIs(t, local, spillway.ErrRejected)
	p := &gatetest.Recorder{}
	conn := start(t, true, &service{echo: func(context.Context, string) (string, error) { return "", local }}, behind(gated(t, nil, p)), nil)
	_, err := echo(context.Background(), conn, "hello")
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
	require.NotContains(t, err.Error(), "secret")
	require.Equal(t, []spillway.Outcome{spillway.Ignored}, p.Outcomes())
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
		require.Equal(t, int64(100-probes), m.s.Stats().Tapped)
		require.Equal(t, int64(100-probes), m.refused())
		_, err := m.s.Tap(context.Background(), &tap.Info{FullMethodName: "/invented"})
		require.NoError(t, err)
		require.Equal(t, 1, m.policy.Stats().Routes)

		m.takes = time.Millisecond
		for tries := 0; ; tries++ {
			if byTap, _ := call(); !byTap && m.refused() == int64(100-probes)+int64(tries) {
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
