package spillway_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

// takes returns a function for Do that needs d, or returns early when its context ends.
func takes(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// doWithin calls fn through gate with that much time, and returns the outcome that p has learnt.
func doWithin(t *testing.T, gate *spillway.Gate, p *probe, given time.Duration, fn func(context.Context) error) spillway.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), given)
	defer cancel()
	_ = spillway.Do(ctx, gate, spillway.Request{Key: "k"}, fn)
	return p.results[len(p.results)-1].Outcome
}

// Callers that give a call too little time cannot open a breaker for the others.
func TestStrangersInAHurryDoNotCountAgainstADependency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps, policies, _ := probes(1)
		gate, p := spillway.New(policies...), ps[0]
		require.Equal(t, spillway.Ignored, doWithin(t, gate, p, time.Millisecond, takes(50*time.Millisecond)), "nothing is known yet")
		require.Equal(t, spillway.Dropped, doWithin(t, gate, p, 100*time.Millisecond, takes(time.Second)))
		for range 20 {
			require.Equal(t, spillway.Success, doWithin(t, gate, p, time.Second, takes(300*time.Millisecond)))
		}
		require.Equal(t, spillway.Ignored, doWithin(t, gate, p, 130*time.Millisecond, takes(300*time.Millisecond)))
		require.Equal(t, spillway.Ignored, doWithin(t, gate, p, 130*time.Millisecond, func(ctx context.Context) error {
			_ = takes(300 * time.Millisecond)(ctx)
			return errors.New("late")
		}))
		require.Equal(t, spillway.Dropped, doWithin(t, gate, p, 400*time.Millisecond, takes(time.Hour)))
		require.Equal(t, spillway.Failure, doWithin(t, gate, p, 130*time.Millisecond, func(context.Context) error {
			return errors.New("broken at once")
		}))
		require.Equal(t, spillway.Dropped, doWithin(t, gate, p, time.Hour, func(context.Context) error {
			return context.DeadlineExceeded // of its own
		}))
		require.Equal(t, spillway.Dropped, doWithin(t, gate, p, time.Millisecond, func(context.Context) error {
			return context.DeadlineExceeded // of its own, with time left
		}))
	})
}

func TestTimeInAQueueIsNoChance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps, _, _ := probes(1)
		gate := spillway.New(&waiting{ps[0], 950 * time.Millisecond})
		require.Equal(t, spillway.Ignored, doWithin(t, gate, ps[0], time.Second, takes(time.Minute)))
	})
}
