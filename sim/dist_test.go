package sim_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/sim"
)

// waiting is a service that only waits, a thousand times a second for ten seconds.
func waiting(wait sim.Dist) sim.Scenario {
	return sim.Scenario{
		Name:     "waiting",
		Machine:  sim.Machine{Cores: 4},
		Classes:  []sim.Class{{Name: "all", Share: 1, Stages: []sim.Stage{{Name: "call", Wait: wait}}}},
		Client:   sim.Client{Useful: time.Minute, Deadline: time.Minute},
		Phases:   []sim.Phase{{For: 10 * time.Second, Load: 1}},
		Capacity: 1000,
	}
}

// latencies returns how long each request was inside, in ms and ascending.
func latencies(t *testing.T, s sim.Scenario) []float64 {
	t.Helper()
	var all []float64
	_, err := sim.Run(s, 1, func(*sim.Host) (*spillway.Gate, error) {
		return spillway.New(observer(func(d time.Duration) { all = append(all, d.Seconds()*1e3) })), nil
	})
	require.NoError(t, err)
	require.Greater(t, len(all), 9000)
	slices.Sort(all)
	return all
}

func meanOf(all []float64) (mean float64) {
	for _, v := range all {
		mean += v / float64(len(all))
	}
	return mean
}

func TestDistributionsAreWhatTheySay(t *testing.T) {
	logNormal := latencies(t, waiting(sim.Dist{LogNormal: 20 * time.Millisecond, Sigma: 1}))
	require.InDelta(t, 20, meanOf(logNormal), 1)
	require.InDelta(t, 20*math.Exp(-0.5), logNormal[len(logNormal)/2], 1, "the median")
	require.InDelta(t, 6.2*20, logNormal[len(logNormal)*99/100], 12, "one in a hundred takes six times the mean")

	bimodal := latencies(t, waiting(sim.Dist{Fixed: 10 * time.Millisecond, Dear: 100 * time.Millisecond, DearShare: 0.1}))
	require.InDelta(t, 20, meanOf(bimodal), 1)
	require.InDelta(t, 10, bimodal[len(bimodal)*8/10], 0.01)
	require.InDelta(t, 110, bimodal[len(bimodal)*95/100], 0.01)
}

// The capacity follows from the means of all parts.
func TestCapacityCountsAllPartsOfADistribution(t *testing.T) {
	s := sim.Named("pool", 1)
	s.Phases = []sim.Phase{{For: time.Second, Load: 0.5}}
	s.Classes[0].Stages[1].Wait = sim.Dist{
		Fixed: 5 * time.Millisecond, LogNormal: 10 * time.Millisecond, Sigma: 0.5, Dear: 50 * time.Millisecond, DearShare: 0.1,
	}
	r, err := sim.Run(s, 1, bare)
	require.NoError(t, err)
	require.InDelta(t, 8/0.020, r.Capacity, 0.01)
}

func TestDistributionsThatCannotBe(t *testing.T) {
	for want, d := range map[string]sim.Dist{
		`class "all": Wait: durations must not be negative`:                {LogNormal: -1},
		`class "all": Wait: field Sigma must be in 0..5, got -1`:           {Sigma: -1},
		`class "all": Wait: field Sigma must be in 0..5, got NaN`:          {Sigma: math.NaN()},
		`class "all": Wait: field DearShare must be in 0..1, got 2`:        {DearShare: 2},
		`class "all": Wait: durations must not be negative, got {Fixed:0s`: {Dear: -time.Second},
	} {
		_, err := sim.Run(waiting(d), 1, bare)
		require.ErrorContains(t, err, want)
	}
}
