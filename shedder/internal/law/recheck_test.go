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
