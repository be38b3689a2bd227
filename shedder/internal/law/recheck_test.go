package law

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A service starts straight into five times its capacity, and answers slowly at first, as if it got little of the CPU.
func slowStart(seed uint64, slots int, takes draw, first, rate float64) *plant {
	p := newPlant(seed, Options{}, slots, constant(first))
	p.run(1.5, 5*rate)
	p.takes = takes
	return p
}

func TestALatencyLearntInABadStartIsForgottenUnderLoad(t *testing.T) {
	for name, takes := range map[string]draw{"constant": constant(0.02), "exponential": exponential(0.02), "lognormal": lognormal(0.02)} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(10) {
				p := slowStart(seed, 4, takes, 0.3, 200)
				p.run(15, 1000)
				p.reset()
				p.run(10, 1000)
				require.Less(t, p.inside()/200, 0.2, "seed %d: seconds that requests take; the work is 20 ms", seed)
				require.Greater(t, p.good/2000, 0.93, "seed %d", seed)
			}
		})
	}
}

// The CPU is unknown, as it is in front of other servers. A moment in which goroutines wait must not leave a bound in force that
// nothing raises or lowers.
func TestAWaitForTheCPUDoesNotHoldForEver(t *testing.T) {
	for seed := range uint64(10) {
		p := newPlant(seed, Options{}, 4, constant(0.3))
		p.r.CPU, p.r.Smoothed, p.r.CPUKnown = 0, 0, false
		p.r.Wait = 0.05
		p.run(1.5, 1000)
		p.r.Wait, p.takes = 0, constant(0.02)
		p.run(15, 1000)
		p.reset()
		p.run(10, 1000)
		require.Less(t, p.inside()/200, 0.2, "seed %d: seconds that requests take; the work is 20 ms", seed)
		require.Greater(t, p.good/2000, 0.93, "seed %d", seed)
		require.Zero(t, p.reasons[CPU], "seed %d", seed)
	}
}
