package sim_test

import (
	"fmt"
	"slices"
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

// parts returns what each route got of its max-min fair part of the busy time.
func parts(s sim.Scenario, load float64, r *sim.Result) (of []float64) {
	total, needs := 0.0, make([]float64, len(s.Classes))
	for i, c := range s.Classes {
		stage := c.Stages[len(c.Stages)-1]
		needs[i] = c.Share * float64(stage.CPU.Exp+stage.Wait.Exp)
		total += needs[i]
	}
	fair := make([]float64, len(needs))
	for left, open := 1.0, len(needs); open > 0; { // fill the needs evenly
		least := left / float64(open)
		for i := range needs {
			if need := load*needs[i]/total - fair[i]; fair[i] < load*needs[i]/total {
				least = min(least, need)
			}
		}
		open = 0
		for i := range needs {
			if fair[i] < load*needs[i]/total-1e-9 {
				fair[i] += least
				left -= least
				if fair[i] < load*needs[i]/total-1e-9 {
					open++
				}
			}
		}
		if left < 1e-9 {
			break
		}
	}
	for i := range needs {
		of = append(of, r.Classes[i].Served*load*needs[i]/total/fair[i])
	}
	return of
}

// With FairRoutes, routes that ask for little are served although one route asks for more than the whole capacity. Each
// gets most of its max-min fair part of the busy time. While there is room, nothing changes.
func TestFairRoutes(t *testing.T) {
	for _, c := range []struct {
		base string
		load float64
		gain float64 // goodput in requests, as a multiple of that without
		part float64 // of the max-min part, that each route gets
	}{
		{"pool", 0.9, 1, 0.95},
		{"pool", 1.5, 1.1, 0.7},
		{"pool", 2, 1.5, 0.8},
		{"pool", 5, 2.7, 0.68},
		{"step", 2, 1.3, 0.3}, // requests of 40 ms on a shared CPU often take longer than the 250 ms in which they are useful
		{"step", 5, 3, 0.7},
	} {
		t.Run(fmt.Sprint(c.base, c.load), func(t *testing.T) {
			s := unequal(c.base, c.load)
			off, on := playJobs(t, s), playFair(t, s)
			t.Logf("goodput %.3f, off %.3f; of its part each route gets %.2f, off %.2f", on.Goodput, off.Goodput, parts(s, c.load, on), parts(s, c.load, off))
			require.GreaterOrEqual(t, on.Goodput, c.gain*off.Goodput)
			require.GreaterOrEqual(t, slices.Min(parts(s, c.load, on)), c.part)
		})
	}
}

func playFair(t *testing.T, s sim.Scenario) *sim.Result {
	t.Helper()
	r, err := sim.Run(s, 1, behindFair)
	require.NoError(t, err)
	return r
}
