package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/sim"
)

// behindObjective is a gate with a shedder that has an objective.
func behindObjective(slo time.Duration) func(h *sim.Host) (*spillway.Gate, error) {
	return func(h *sim.Host) (*spillway.Gate, error) {
		shed, err := shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched(), SLO: slo})
		return spillway.New(shed), err
	}
}

// A service that is told its objective keeps it, whatever it is.
func TestAnObjectiveIsKept(t *testing.T) {
	for _, slo := range []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second} {
		for _, s := range []sim.Scenario{sim.Named("step", 2), sim.Named("step", 10), sim.Named("step-solid", 2), sim.Named("pool", 2)} {
			s.Client.Useful, s.Client.Deadline = slo, 2*slo
			r := play(t, s, 1, behindObjective(slo))
			require.GreaterOrEqual(t, r.Goodput, 0.96, "%s, %v", s.Name, slo)
			require.LessOrEqual(t, r.P99, slo, "%s, %v", s.Name, slo)
		}
	}
}

// An objective that is tighter than the limit of the calm service is kept, too.
func TestATightObjectiveIsKept(t *testing.T) {
	for _, load := range []float64{2, 10} {
		s := sim.Named("pool", load)
		s.Classes[0].Stages[1].Wait = sim.Dist{Fixed: 100 * time.Millisecond} // 80/s
		const slo = 180 * time.Millisecond
		s.Client.Useful, s.Client.Deadline = slo, 2*slo
		r := play(t, s, 1, behindObjective(slo))
		require.LessOrEqual(t, r.P99, slo)
		require.GreaterOrEqual(t, r.Goodput, 0.95)
	}
}
