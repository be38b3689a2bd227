package deadline_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/deadline"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/policytest"
	"github.com/spillway-go/spillway/shadow"
)

const ms = time.Millisecond

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newPolicy(t testing.TB, o *deadline.Options) *deadline.Policy {
	t.Helper()
	p, err := deadline.New(o)
	require.NoError(t, err)
	return p
}

// run lets a request through p that would take takes, and is cut off by its timeout. It reports whether it ran.
func run(p spillway.Policy, at time.Time, route string, timeout, takes time.Duration) bool {
	r := spillway.Request{Route: route, Timeout: timeout, Arrived: at}
	ticket, err := p.Admit(context.Background(), r)
	if err != nil {
		return false
	}
	res := spillway.Result{Outcome: spillway.Success, Latency: takes}
	if timeout != 0 && takes > timeout {
		res = spillway.Result{Outcome: spillway.Ignored, Latency: timeout}
	}
	p.Done(r, ticket, res)
	return true
}

// taught returns a Policy that has seen 20 requests of route "a" take latency, all at start.
func taught(t testing.TB, latency time.Duration) *deadline.Policy {
	t.Helper()
	p := newPolicy(t, nil)
	for range 20 {
		require.True(t, run(p, start, "a", 0, latency))
	}
	return p
}

func TestConformance(t *testing.T) {
	policytest.Run(t, func() spillway.Policy { return newPolicy(t, nil) }, nil)
}

func TestInvalidOptionsAreNamed(t *testing.T) {
	for want, o := range map[string]deadline.Options{
		"deadline: MaxRoutes must be at least 0, got -1":       {MaxRoutes: -1},
		`deadline: Name must be printable ASCII, got "a\nb"`:   {Name: "a\nb"},
		"deadline: Name must be at most 64 bytes, got 65 (\"x": {Name: strings.Repeat("x", 65)},
	} {
		_, err := deadline.New(&o)
		require.ErrorContains(t, err, want)
	}
}

func TestRefusesWhatCannotFinish(t *testing.T) {
	p := taught(t, 50*ms)
	_, err := p.Admit(context.Background(), spillway.Request{Route: "a", Timeout: 49 * ms, Arrived: start})
	require.Equal(t, &spillway.Rejection{Policy: "deadline", Reason: "deadline too near", TooLate: true}, spillway.RejectionOf(err))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, spillway.ErrRejected)
	for _, c := range []struct {
		route   string
		timeout time.Duration
		want    bool
	}{
		{"a", 50 * ms, true}, {"a", 0, true}, {"a", -1, false},
		{"b", 1, true}, {"b", -1, false}, {"", 1, true}, {"", -1, false},
	} {
		require.Equal(t, c.want, run(p, start, c.route, c.timeout, 0), "%+v", c)
	}
	require.Equal(t, deadline.Stats{
		Name: "deadline", Routes: 2, Refused: 4, ByReason: []spillway.Refusal{{Policy: "deadline", Reason: "deadline too near", Count: 4}},
	}, p.Stats())
}

// A stranger can finish a request soon only by a success. Errors are quick, and teach nothing.
func TestOnlySuccessesTeach(t *testing.T) {
	p := taught(t, 50*ms)
	for range 1000 {
		for _, o := range []spillway.Outcome{spillway.Failure, spillway.Ignored, spillway.Dropped, spillway.Refused} {
			for _, latency := range []time.Duration{0, time.Hour} {
				p.Done(spillway.Request{Route: "a", Arrived: start}, 0, spillway.Result{Outcome: o, Latency: latency})
			}
			p.Done(spillway.Request{Route: "a", Timeout: 2 * time.Hour, Arrived: start}, 0, spillway.Result{Outcome: o, Latency: time.Hour})
			p.Done(spillway.Request{Route: "a", Timeout: 10 * ms, Arrived: start}, 0, spillway.Result{Outcome: o, Latency: 10 * ms})
		}
	}
	d, known := p.Latency("a")
	require.True(t, known)
	require.Equal(t, 50*ms, d)
}

// A route became so slow that all of its requests are cut off. Later it becomes fast again.
func TestARouteThatSlowsAndRecovers(t *testing.T) {
	p := taught(t, 5*ms)
	now, ran := start, 0
	play := func(takes, span time.Duration) (last int) {
		for range span / ms {
			now = now.Add(ms)
			if run(p, now, "a", 20*ms, takes) {
				ran++
				last++
			}
		}
		return last
	}
	slow := play(100*ms, 10*time.Second)
	require.Less(t, slow, 1500, "of 10000")
	play(5*ms, 30*time.Second)
	require.Equal(t, 1000, play(5*ms, time.Second))
	require.Positive(t, p.Stats().Probes)
}

// Callers whose timeouts are absurd do not close the route for the others.
func TestShortTimeoutsOnlyHarmTheirSenders(t *testing.T) {
	p := taught(t, 5*ms)
	now := start
	for range 10_000 {
		now = now.Add(ms)
		for _, absurd := range []time.Duration{1, 1000, ms, 4 * ms} {
			run(p, now, "a", absurd, 5*ms)
		}
		require.True(t, run(p, now, "a", 6*ms, 5*ms))
	}
}

func TestRoutesAreBounded(t *testing.T) {
	p := newPolicy(t, &deadline.Options{MaxRoutes: 3, Name: "late"})
	for i := range 1000 {
		for range 20 {
			run(p, start, fmt.Sprint(i), 0, 50*ms)
		}
		require.Equal(t, i >= 3, run(p, start, fmt.Sprint(i), ms, 50*ms), i)
	}
	require.True(t, run(p, start, strings.Repeat("x", 1000), 0, 50*ms))
	require.Equal(t, "late", p.Stats().Name)
	require.Equal(t, 3, p.Stats().Routes)
	require.Equal(t, int64(3), p.Stats().Refused)
}

// turns is a queue that knows nothing of deadlines.
type turns chan struct{}

func (turns) Queues() bool { return true }

func (q turns) Admit(ctx context.Context, _ spillway.Request) (spillway.Ticket, error) {
	select {
	case q <- struct{}{}:
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (q turns) Done(spillway.Request, spillway.Ticket, spillway.Result) { <-q }

// Waits in a queue behind the policy are part of the latency, so that the expected wait counts.
func TestAQueueBehindCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolicy(t, nil)
		gate := spillway.New(p, turns(make(chan struct{}, 1)))
		do := func(timeout time.Duration) error {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			return spillway.Do(ctx, gate, spillway.Request{Route: "a"}, func(context.Context) error {
				time.Sleep(10 * ms)
				return nil
			})
		}
		for range 20 {
			require.NoError(t, do(time.Minute))
		}
		require.NoError(t, do(15*ms), "there is no queue")
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				for range 400 {
					_ = do(time.Minute)
				}
			})
		}
		time.Sleep(19 * time.Second)
		d, _ := p.Latency("a")
		require.InDelta(t, 0.05, d.Seconds(), 0.01, "four wait in front")
		require.NotErrorIs(t, do(25*ms), spillway.ErrRejected, "a probe, which waits until its time is over")
		require.NotErrorIs(t, do(25*ms), spillway.ErrRejected, "in its place, since it did not run")
		err := do(25 * ms)
		require.ErrorIs(t, err, spillway.ErrRejected)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		wg.Wait()
	})
}

// A probe that a later policy refuses, or that only peeks, is there for the next request.
func TestProbesAreGivenBack(t *testing.T) {
	p, full := taught(t, 50*ms), gatetest.Refusing(&spillway.Rejection{Policy: "full", Reason: "full"})
	gate := spillway.New(p, full)
	at := start.Add(time.Second)
	enter := func() error {
		permit, err := gate.Enter(context.Background(), spillway.Request{Route: "a", Timeout: 40 * ms, Arrived: at})
		permit.DoneAt(at.Add(40*ms), spillway.Ignored, 0)
		return err
	}
	require.Equal(t, "full", spillway.RejectionOf(enter()).Policy)
	at = at.Add(time.Second)
	full.Refuse(nil)
	require.NoError(t, gate.Peek(context.Background(), spillway.Request{Route: "a", Timeout: 40 * ms, Arrived: at}))
	require.NoError(t, enter())
	require.Error(t, enter())
	require.Equal(t, int64(1), p.Stats().Probes)
}

func TestADryRun(t *testing.T) {
	dry := shadow.New(taught(t, 50*ms))
	require.True(t, run(dry, start, "a", 40*ms, 50*ms))
	require.Equal(t, int64(1), dry.Stats()[0].WouldRefuse)
}

func TestDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	p := taught(t, 50*ms)
	now := start
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now = now.Add(ms)
		run(p, now, "a", 40*ms, 50*ms)
		run(p, now, "a", 60*ms, 50*ms)
		run(p, now, "a", 0, 60*ms)
	}))
}

func TestConcurrentUse(t *testing.T) {
	p := newPolicy(t, &deadline.Options{MaxRoutes: 10})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 5000 {
				now := start.Add(time.Duration(i) * ms)
				run(p, now, fmt.Sprint(i%20), time.Duration(i%30)*ms, 15*ms)
				p.Stats()
			}
		})
	}
	wg.Wait()
	require.Equal(t, 10, p.Stats().Routes)
	require.Positive(t, p.Stats().Refused)
}
