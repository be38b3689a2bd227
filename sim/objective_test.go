package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/sim"
)

// A service that is told its objective keeps it, whatever it is: less patient callers get less of the capacity, faster.
func TestAnObjectiveIsKept(t *testing.T) {
	var last float64
	for _, slo := range []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second} {
		for i, s := range []sim.Scenario{sim.Step(2), sim.Step(10), sim.StepSolid(2), sim.Pool(2)} {
			s.Client.Useful, s.Client.Deadline = slo, 2*slo
			r := play(t, s, 1, func(h *sim.Host) (*spillway.Gate, error) {
				shed, err := shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched(), MinLimit: 2 * h.Cores(), SLO: slo})
				return spillway.New(shed), err
			})
			require.GreaterOrEqual(t, r.Goodput, 0.96, "%s, %v", s.Name, slo)
			require.LessOrEqual(t, r.P99, slo.Seconds()*1e3, "%s, %v", s.Name, slo)
			if i == 0 {
				require.Greater(t, r.Goodput, last, "who may wait longer is refused less")
				last = r.Goodput
			}
		}
	}
}
