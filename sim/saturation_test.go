package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/sim"
)

// Of few requests, half as many more than a moment ago are inside by chance. That is no flood.
func TestChanceIsNotTakenForAFlood(t *testing.T) {
	for seed := range uint64(2) {
		s := sim.SlowDependency()
		for i := range s.Phases {
			s.Phases[i].Load = 0.3
		}
		s.Events[0].Slower, s.Events[1].Slower = 200*time.Millisecond, -200*time.Millisecond
		r := play(t, s, seed+1, behindShedder)
		require.Zero(t, r.WronglyRefused, "the CPU is idle, and all are answered in time")
	}
}
