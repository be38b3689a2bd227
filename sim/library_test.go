package sim_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/sim"
)

// within returns s with its times divided, so that it takes less of them.
func within(s sim.Scenario, divisor time.Duration) sim.Scenario {
	for i := range s.Phases {
		s.Phases[i].For /= divisor
	}
	for i := range s.Events {
		s.Events[i].At /= divisor
	}
	s.Machine.Cold /= int(divisor)
	return s
}

func length(s sim.Scenario) (sum time.Duration) {
	for _, p := range s.Phases {
		sum += p.For
	}
	return sum
}

// What must hold in a scenario that is cut to a sixth: the goodput behind the shedder and bare, as shares of the capacity.
type bounds struct{ least, bareMost, wrongly float64 }

var asked = map[string]bounds{
	"step": {0.95, 0.2, 0.02}, "step-solid": {0.9, 0.2, 0.02}, "step-quota": {0.75, 0.2, 0.01},
	"ramp": {0.85, 0.6, math.NaN()}, "bursts": {0.55, 1, 0.05}, "steady": {0.95, 0.05, math.NaN()},
	"steady-70": {0.65, 1, 0}, "steady-90": {0.8, 1, 0.05}, "steady-95": {0.8, 1, 0.1},
	"bimodal": {0.8, 0.25, 0.05}, "cpu-io": {0.7, 0.3, 0.02}, "slow-dependency": {0.4, 1, 0},
	"failing-dependency": {0, 0.1, 0}, "pool": {0.6, 0.2, 0.01}, "lock": {0.75, 0.4, 0.05},
	"neighbour": {0.4, 0.2, 1}, "quota-cut": {0.35, 0.2, 1}, "pauses": {0.5, 1, 0.01},
	"retry-storm": {0.5, 1, 1}, "priorities": {0.9, 0.2, 0.03}, "critical-flood": {0.9, 0.2, 0.02},
	"noisy-tenant": {0.9, 0.2, 0.02}, "jobs": {0.6, 0.3, 0.02}, "cold-start": {0.6, 1, 1},
	"idle-step": {0.9, 0.3, 0.01}, "impatient": {0.9, 0.2, 0.02}, "clock-jump": {0.8, 0.2, 0.2}, "blind": {0.5, 0.2, 0.02},
	"server-step": {0.7, 0.3, 0.01}, "server-ramp": {0.7, 0.7, math.NaN()}, "server-dependency": {0.45, 1, 0.01},
	"slow-host": {0.55, 0.65, 0.2},
}

func TestEveryScenario(t *testing.T) {
	all := sim.Library(5)
	require.Len(t, asked, len(all), "each name is there once, and bounds for it")
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			want, ok := asked[s.Name]
			require.True(t, ok)
			if length(s) >= time.Minute {
				s = within(s, 6)
			}
			r, bareR := play(t, s, 1, behindShedder), play(t, s, 1, bare)
			require.GreaterOrEqual(t, r.Goodput, want.least)
			require.LessOrEqual(t, bareR.Goodput, want.bareMost)
			if s.Name != "retry-storm" { // bare, it keeps more of the short peak, and never recovers from it
				require.GreaterOrEqual(t, r.Goodput, bareR.Goodput-0.02, "it does no harm")
			}
			if !math.IsNaN(want.wrongly) {
				require.LessOrEqual(t, r.WronglyRefused, want.wrongly)
			}
			require.Zero(t, bareR.Shed)
		})
	}
}

func TestNamed(t *testing.T) {
	for _, s := range sim.Library(5) {
		require.Equal(t, s, sim.Named(s.Name, 5))
	}
	require.PanicsWithValue(t, `sim: Named: name must be that of a scenario of the library, got "stepp"`, func() { sim.Named("stepp", 5) })
}
