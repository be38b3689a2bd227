package adaptive_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adaptive"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/sim"
)

// service is a pool of four calls of 100 ms on average, which has ten calm minutes, an hour of the given load, and five
// calm minutes more.
func service(load float64, events ...sim.Event) sim.Scenario {
	return sim.Scenario{
		Name:    "incident",
		Machine: sim.Machine{Pools: map[string]int{"db": 4}},
		Classes: []sim.Class{{Share: 1, Stages: []sim.Stage{
			{CPU: sim.Dist{Fixed: 100 * time.Microsecond}},
			{Name: "query", Wait: sim.Dist{Fixed: 50 * time.Millisecond, Exp: 50 * time.Millisecond}, During: "db"},
		}}},
		Client: sim.Client{Useful: 600 * time.Millisecond, Deadline: 10 * time.Second},
		Phases: []sim.Phase{
			{For: 10 * time.Minute, Load: 0.6},
			{For: time.Hour, Load: load, Measured: true},
			{For: 5 * time.Minute, Load: 0.6},
		},
		Events: events,
	}
}

// play runs a scenario behind a Limit, and returns the greatest baseline of the hour, and the last one.
func play(t *testing.T, s sim.Scenario, o adaptive.Options) (r *sim.Result, peak, last time.Duration) {
	t.Helper()
	if race.Enabled || testing.Short() {
		t.Skip("a simulation is one goroutine: its figures are checked without the race detector, ten times faster")
	}
	r, err := sim.Run(s, 1, func(h *sim.Host) (*spillway.Gate, error) {
		l, err := adaptive.New(&o)
		h.Every(100*time.Millisecond, func(seconds float64) {
			last = l.Stats().Baseline
			if seconds > 600 && seconds < 4200 {
				peak = max(peak, last)
			}
		})
		return spillway.New(l), err
	})
	require.NoError(t, err)
	return r, peak, last
}

var estimators = map[string]func() adaptive.Estimator{
	"gradient2": func() adaptive.Estimator { return &adaptive.Gradient2{} },
	"vegas":     func() adaptive.Estimator { return &adaptive.Vegas{} },
}

// healthiest is the ceiling of a service with a mean latency of 110 ms in calm.
const healthiest = 230 * time.Millisecond

// The load doubles for an hour. Without the bound Gradient2 comes to take 1 s for normal, and Vegas 0.6 s now and then.
func TestHourOfOverloadDoesNotMoveTheBaseline(t *testing.T) {
	for name, c := range map[string]struct{ least, leastOff, mostOff float64 }{
		"gradient2": {0.89, 0.1, 0.4},
		"vegas":     {0.98, 0.98, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, peak, last := play(t, service(2), adaptive.Options{Estimator: estimators[name]()})
			require.LessOrEqual(t, peak, healthiest)
			require.Less(t, last, 130*time.Millisecond)
			require.GreaterOrEqual(t, r.Goodput, c.least)
			require.LessOrEqual(t, r.WronglyRefused, 0.01)
			require.LessOrEqual(t, r.Recovered, 2*time.Second)

			r, peak, _ = play(t, service(2), adaptive.Options{Estimator: estimators[name](), MaxRise: adaptive.Off})
			require.Greater(t, peak, 2*healthiest, "without the bound it drifts")
			require.GreaterOrEqual(t, r.Goodput, c.leastOff)
			require.LessOrEqual(t, r.Goodput, c.mostOff)
		})
	}
}

// Each call takes ten times as long for an hour. The limit stays tight all the time, and opens within two seconds after.
func TestHourOfSlowCallsDoesNotMoveTheBaseline(t *testing.T) {
	slow := []sim.Event{
		{At: 10 * time.Minute, Stage: "query", Slower: 900 * time.Millisecond},
		{At: 70 * time.Minute, Stage: "query", Slower: -900 * time.Millisecond},
	}
	for name, e := range estimators {
		t.Run(name, func(t *testing.T) {
			r, peak, last := play(t, service(0.6, slow...), adaptive.Options{Estimator: e()})
			require.LessOrEqual(t, peak, healthiest)
			require.Less(t, last, 130*time.Millisecond)
			require.LessOrEqual(t, r.P99, 2500*time.Millisecond)
			require.LessOrEqual(t, r.Recovered, 2*time.Second)

			r, peak, _ = play(t, service(0.6, slow...), adaptive.Options{Estimator: e(), MaxRise: adaptive.Off})
			require.Greater(t, peak, 4*healthiest, "without the bound it drifts")
			require.GreaterOrEqual(t, r.P99, 6*time.Second)
		})
	}
}
