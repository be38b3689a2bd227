package main

import (
	"fmt"
	"math"
	"os"
	"time"

	"github.com/spillway-go/spillway/sim"
)

// replayed is the scenario that the flags ask for with -trace, and its greatest load.
func replayed(s settings) (scenario sim.Scenario, peak float64, err error) {
	switch {
	case !(s.scale > 0 && s.scale <= 100):
		return sim.Scenario{}, 0, fmt.Errorf("scale must be above 0 and at most 100, got %v", s.scale)
	case s.cores < 1 || s.cores > 1024:
		return sim.Scenario{}, 0, fmt.Errorf("cores must be in 1..1024, got %d", s.cores)
	case s.useful < time.Millisecond || s.useful > time.Hour:
		return sim.Scenario{}, 0, fmt.Errorf("useful must be from 1ms to 1h, got %v", s.useful)
	}
	file, err := os.Open(s.trace)
	if err != nil {
		return sim.Scenario{}, 0, err
	}
	defer file.Close()
	trace, err := sim.ReadTrace(file)
	if err != nil {
		return sim.Scenario{}, 0, fmt.Errorf("%s: %w", s.trace, err)
	}
	trace = sim.Scale(trace, s.scale, s.seed)
	if len(trace) == 0 {
		return sim.Scenario{}, 0, fmt.Errorf("%s: nothing is left at %v times the rate", s.trace, s.scale)
	}
	scenario = sim.Replay(trace, sim.Machine{Cores: s.cores})
	scenario.Client = sim.Client{Useful: s.useful, Deadline: 4 * s.useful}
	for _, p := range scenario.Phases {
		peak = math.Max(peak, p.Load)
	}
	return scenario, peak, nil
}
