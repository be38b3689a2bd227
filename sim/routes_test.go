package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/sim"
)

// unequal is a step of requests on three routes that differ by a factor of 80, like those of bench/postgres.
func unequal(base string, load float64) sim.Scenario {
	s := sim.Named(base, load)
	of := s.Classes[0]
	s.Classes = nil
	for _, c := range []struct {
		route string
		share float64
		takes time.Duration
	}{{"one", 7, 500 * time.Microsecond}, {"page", 2, 2 * time.Millisecond}, {"sum", 1, 40 * time.Millisecond}} {
		class := of
		class.Name, class.Route, class.Share = c.route, c.route, c.share
		class.Stages = []sim.Stage{{CPU: sim.Dist{Exp: c.takes}}}
		if len(of.Stages) > 1 {
			class.Stages = []sim.Stage{of.Stages[0], {Wait: sim.Dist{Exp: c.takes}, During: of.Stages[1].During}}
		}
		s.Classes = append(s.Classes, class)
	}
	return s
}

func behindFair(h *sim.Host) (*spillway.Gate, error) {
	shed, err := shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched(), FairRoutes: true})
	return spillway.New(shed), err
}

func TestFairRoutes(t *testing.T) {
	for _, base := range []string{"pool", "step"} {
		for _, load := range []float64{0.9, 1.5, 2, 5} {
			t.Run(fmt.Sprint(base, load), func(t *testing.T) {
				s := unequal(base, load)
				off, on := play(t, s, 1, behindShedder), play(t, s, 1, behindFair)
				for i, c := range on.Classes {
					t.Logf("%-5s served %.3f, off %.3f, p99 %v, off %v", c.Name, c.Served, off.Classes[i].Served, c.P99, off.Classes[i].P99)
				}
				t.Logf("goodput %.3f, off %.3f; shed %.3f, off %.3f", on.Goodput, off.Goodput, on.Shed, off.Shed)
				require.Greater(t, on.Goodput, 0.0)
			})
		}
	}
}
