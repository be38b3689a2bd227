package deadline

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMinBudgetOfAnUnknownKeyIsTheLeast(t *testing.T) {
	require.Equal(t, 100*ms, newEstimator(t, nil).MinBudget("a"))
	require.Equal(t, 10*ms, newEstimator(t, &Options{MinBudget: 10 * ms}).MinBudget("a"))
	_, err := New(&Options{MinBudget: -1})
	require.EqualError(t, err, "deadline: MinBudget: must be at least 0, got -1ns")
	require.Positive(t, newEstimator(t, &Options{MinBudget: None}).MinBudget("a"))
}

func TestMinBudgetIsLearntFromTwentyRequests(t *testing.T) {
	e := newEstimator(t, nil)
	for range 3 {
		e.ObserveWithin("a", 300*ms, None, start)
	}
	require.InDelta(t, 304, e.MinBudget("a").Milliseconds(), 1, "the first ones move it fast")
	require.Equal(t, 100*ms, e.MinBudget("b"))
	for range 1000 {
		e.ObserveWithin("a", 20*ms, None, start)
	}
	require.Equal(t, 100*ms, e.MinBudget("a"), "never below the least")
	before := (*e.tracks.Load())["a"].fair.Load()
	e.ObserveWithin("a", 90*ms, None, start)
	require.Equal(t, before, (*e.tracks.Load())["a"].fair.Load(), "a fast key is not written to")
}

// One slow request of a warm-up does not make all others hurried.
func TestMinBudgetStandsOneSlowRequest(t *testing.T) {
	e := newEstimator(t, nil)
	e.ObserveWithin("a", time.Hour, None, start)
	require.Less(t, e.MinBudget("a"), 150*ms)
}

func TestMinBudgetIsTheNinetiethPercentile(t *testing.T) {
	for name, draw := range map[string]func(*rand.Rand) time.Duration{
		"mostly 300 ms, sometimes 20": func(rng *rand.Rand) time.Duration {
			if rng.IntN(10) < 7 {
				return 300 * ms
			}
			return 20 * ms
		},
		"uniform":     func(rng *rand.Rand) time.Duration { return 200*ms + time.Duration(rng.IntN(1000))*ms },
		"exponential": func(rng *rand.Rand) time.Duration { return time.Duration(rng.ExpFloat64() * float64(500*ms)) },
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			e := newEstimator(t, nil)
			var drawn []time.Duration
			for range 4000 {
				d := draw(rng)
				drawn = append(drawn, d)
				e.ObserveWithin("a", d, None, start)
			}
			slices.Sort(drawn)
			want := float64(drawn[len(drawn)*9/10])
			require.InDelta(t, want, float64(e.MinBudget("a")), 0.2*want)
		})
	}
}

// A crowd of requests that all have little time does not bring the budget down: those of them that finish are the fast
// ones.
func TestHurriedRequestsDoNotTeachTheMinBudget(t *testing.T) {
	e := newEstimator(t, nil)
	for range 100 {
		e.ObserveWithin("a", 300*ms, None, start)
	}
	fair := e.MinBudget("a")
	for range 10000 {
		e.ObserveWithin("a", 20*ms, generous*fair-2, start)
	}
	require.Equal(t, fair, e.MinBudget("a"))
	e.ObserveWithin("a", 20*ms, generous*fair, start)
	require.Less(t, e.MinBudget("a"), fair)
	require.Equal(t, 100*ms, fairAfter(t, 20*ms, 199*ms), "nor before anything is known")
}

func fairAfter(t *testing.T, latency, left time.Duration) time.Duration {
	t.Helper()
	e := newEstimator(t, nil)
	for range 100 {
		e.ObserveWithin("a", latency, left, start)
	}
	return e.MinBudget("a")
}

// A service that becomes slower little by little, until all deadlines pass, is not excused: the budget stays below
// the deadlines that its clients have.
func TestMinBudgetStaysBelowTheDeadlinesOfAll(t *testing.T) {
	e := newEstimator(t, nil)
	const left = time.Second
	for latency := 10 * ms; latency < left; latency += ms {
		e.ObserveWithin("a", latency, left, start)
	}
	require.Less(t, e.MinBudget("a"), left)
	require.Greater(t, e.MinBudget("a"), left/3)
}

func TestObserveWithinTeachesTheLowQuantileToo(t *testing.T) {
	e := newEstimator(t, nil)
	for range warmUp {
		e.ObserveWithin("a", 10*ms, 15*ms, start)
	}
	require.Equal(t, 10*ms, estimate(t, e))
	none := newEstimator(t, &Options{MaxKeys: 1})
	none.ObserveWithin("a", ms, None, start)
	none.ObserveWithin("b", time.Hour, None, start)
	require.Equal(t, 100*ms, none.MinBudget("b"), "no room for it")
}
