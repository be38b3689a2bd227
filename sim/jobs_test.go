package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/sim"
)

// Of jobs of up to four requests, of which all must be served, nearly as many succeed as there is capacity for, if the later
// requests of a job have a higher priority. The goodput is the share of the capacity that whole jobs got. The first five
// seconds of an overload do not count: the shedder has to learn that the mix of the priorities has changed.
func TestJobs(t *testing.T) {
	for _, base := range []string{"pool", "step"} {
		for _, load := range []float64{1.4, 2, 5} {
			for calls := 1; calls <= 4; calls++ {
				t.Run(fmt.Sprintf("%s-%v-%d", base, load, calls), func(t *testing.T) {
					s := jobs(base, load, calls)
					flat := playJobs(t, s)
					s.Classes[0].Raise = 1
					raised := playJobs(t, s)
					t.Logf("of the possible jobs succeed %.3f, and %.3f without a raise", raised.Goodput, flat.Goodput)
					require.GreaterOrEqual(t, raised.Goodput, 0.945) // 0.953 at least, where it was measured
					require.GreaterOrEqual(t, flat.Goodput, 0.9)
				})
			}
		}
	}
}

// jobs is a step of jobs that consist of so many requests.
func jobs(base string, load float64, calls int) sim.Scenario {
	s := sim.Named(base, load)
	s.Classes[0].Calls = calls
	s.Client.Useful = 4 * time.Second
	s.Phases = []sim.Phase{
		{For: 30 * time.Second, Load: 0.7}, {For: 5 * time.Second, Load: load}, {For: 30 * time.Second, Load: load, Measured: true},
	}
	return s
}

func playJobs(t *testing.T, s sim.Scenario) *sim.Result {
	t.Helper()
	figures(t)
	r, err := sim.Run(s, 1, behindShedder)
	require.NoError(t, err)
	return r
}
