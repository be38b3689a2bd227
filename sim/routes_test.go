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

// unequal is a step of requests on three routes whose times differ by a factor of 80, like those of bench/postgres.
func unequal(base string, load float64) sim.Scenario {
	s := sim.Named(base, load)
	s.Client.Useful, s.Client.Deadline = time.Second, 2*time.Second
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

// parts returns what each route gets of its max-min fair share of the busy time.
func parts(s sim.Scenario, load float64, r *sim.Result) (of []float64) {
	total, needs := 0.0, make([]float64, len(s.Classes))
	for i, c := range s.Classes {
		for _, stage := range c.Stages {
			needs[i] += c.Share * float64(stage.CPU.Fixed+stage.CPU.Exp+stage.Wait.Exp)
		}
		total += needs[i]
	}
	for i := range needs {
		needs[i] *= load / total
	}
	for i, fair := range fairShares(needs, 1) {
		of = append(of, r.Classes[i].Served*needs[i]/fair)
	}
	return of
}

// With FairRoutes, routes that ask for little are served although one route asks for more than the whole capacity, and each
// gets its max-min fair share of the busy time. While there is room, nothing changes. The measured least part is 0.88.
func TestFairRoutes(t *testing.T) {
	for _, c := range []struct {
		base  string
		load  float64
		gain  float64 // goodput in requests, as a multiple of that without
		cheap float64 // share of the requests of the cheapest route that is served
	}{
		{"pool", 0.9, 0.995, 0.98},
		{"pool", 1.1, 1.05, 0.95},
		{"pool", 2, 1.6, 0.95},
		{"pool", 5, 2.7, 0.6}, // it needs more than a third
		{"step", 0.9, 0.99, 0.98},
		{"step", 1.1, 1, 0.95},
		{"step", 2, 1.6, 0.95},
		{"step", 5, 3, 0.8},
	} {
		t.Run(fmt.Sprint(c.base, c.load), func(t *testing.T) {
			s := unequal(c.base, c.load)
			off, on := play(t, s, 1, behindShedder), play(t, s, 1, behindFair)
			least := slices.Min(parts(s, c.load, on))
			t.Logf("| %s | %v | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |", c.base, c.load, on.Goodput, off.Goodput,
				on.Classes[0].Served, off.Classes[0].Served, least, slices.Min(parts(s, c.load, off)))
			require.GreaterOrEqual(t, on.Goodput, c.gain*off.Goodput)
			require.GreaterOrEqual(t, on.Classes[0].Served, c.cheap)
			require.GreaterOrEqual(t, least, 0.8)
		})
	}
}
