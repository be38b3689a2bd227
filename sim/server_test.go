package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/sim"
)

// The figures of a real server, from examples/simulate/real, and how far the simulated ones may be from them: 0.1 of the
// capacity, 0.03 of the requests, half a refusal's latency. docs/simulating.md shows both.
func TestSimulatedServerDoesAsTheRealOne(t *testing.T) {
	const beside = 100 * time.Microsecond
	for _, m := range []struct {
		s                      sim.Scenario
		goodput, bare, refused float64
		refusedP99             float64 // in ms
	}{
		{withBeside(sim.Named("server-step", 5), beside), 0.98, 0.01, 0.80, 67},
		{withBeside(sim.Named("server-step", 2), beside), 0.99, 0.03, 0.50, 62},
		{withBeside(sim.Named("server-ramp", 3), beside), 0.97, 0.27, 0.45, 62},
		{withBeside(sim.Named("server-dependency", 0), beside), 0.49, 0.49, 0, 0},
	} {
		goodput, refused, refusedP99 := means(t, m.s, behindShedder)
		require.InDelta(t, m.goodput, goodput, 0.1, m.s.Name)
		require.InDelta(t, m.refused, refused, 0.03, m.s.Name)
		if m.refused > 0 {
			require.InEpsilon(t, m.refusedP99, refusedP99, 0.5, m.s.Name)
		}
		goodput, refused, _ = means(t, m.s, bare)
		require.InDelta(t, m.bare, goodput, 0.1, m.s.Name)
		require.Zero(t, refused)
	}
}

func means(t *testing.T, s sim.Scenario, gate func(*sim.Host) (*spillway.Gate, error)) (goodput, refused, refusedP99 float64) {
	t.Helper()
	const seeds = 4
	for seed := range uint64(seeds) {
		r := play(t, s, seed+1, gate)
		goodput += r.Goodput / seeds
		refused += r.Shed / seeds
		refusedP99 += r.RefusedP99.Seconds() * 1e3 / seeds
	}
	return goodput, refused, refusedP99
}

// withBeside adds the cost of an answered request beside its work to the scenario of a small server, whose Parse is a part of it.
func withBeside(s sim.Scenario, beside time.Duration) sim.Scenario {
	s.Classes[0].Stages[0].CPU.Fixed += max(0, beside-s.Machine.Parse)
	return s
}
