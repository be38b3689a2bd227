package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-go/spillway/lab/overload"
)

// sweeps are the fixed limits that are tried for each work. In every search so far, the best of them was not at an end of the
// list.
var sweeps = map[string][]int{
	"cpu":      {4, 8, 16, 32},
	"cpusolid": {1, 2, 4, 8},
	"io":       {16, 32, 64, 128},
	"db":       {8, 16, 32, 64},
	"mixed":    {4, 8, 16, 32},
	"slow":     {300, 600, 1200, 2400},
	"slow2":    {600, 1200, 2400},
}

// isFixed reports whether a guard is a fixed limit.
func isFixed(guard string) bool {
	_, ok := overload.FixedLimit(guard)
	return ok
}

// limits returns the guards that are added to find the best fixed limit.
func (s *settings) limits(work string) (guards []string, err error) {
	limits := sweeps[work]
	switch {
	case s.sweep == "none", s.sweep == "auto" && slices.ContainsFunc(s.guards, isFixed):
		return nil, nil
	case s.sweep == "auto" && limits == nil:
		limits = []int{4, 8, 16, 32}
	case s.sweep != "auto":
		limits = nil
		for text := range strings.SplitSeq(s.sweep, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("overload: -sweep: limits must be numbers of at least 1, got %q", text)
			}
			limits = append(limits, n)
		}
	}
	for _, n := range limits {
		if name := fmt.Sprintf("fixed:%d", n); !slices.Contains(s.guards, name) {
			guards = append(guards, name)
		}
	}
	return guards, nil
}

// attempts is how often a pass is measured as long as the capacity moves too far.
const attempts = 3

// measure carries out all passes of one work.
func (s *settings) measure(work string, measure func(overload.Plan) (*overload.Run, error), out io.Writer) ([]*overload.Run, error) {
	limits, err := s.limits(work)
	if err != nil {
		return nil, err
	}
	guards := slices.Concat(s.guards, limits)
	var passes []*overload.Run
	for i := range s.passes {
		plan := s.plan
		plan.Work, plan.Seed = work, s.plan.Seed+uint64(i)
		plan.Guards = rotate(guards, i*len(guards)/s.passes)
		fmt.Fprintf(out, "\n%s, pass %d of %d: %s\n", work, i+1, s.passes, strings.Join(plan.Guards, ", "))
		pass, err := s.steady(plan, measure, out)
		if err != nil {
			return nil, err
		}
		passes = append(passes, pass)
	}
	return passes, nil
}

// steady measures plan until the capacity stays within the bound. If it never does, it returns the attempt in which it moved
// the least, with a note.
func (s *settings) steady(plan overload.Plan, measure func(overload.Plan) (*overload.Run, error), out io.Writer) (*overload.Run, error) {
	var best *overload.Run
	for range attempts {
		pass, err := measure(plan)
		if err != nil {
			return nil, err
		}
		if best == nil || moved(pass) < moved(best) {
			best = pass
		}
		if moved(pass) <= s.bound {
			return pass, nil
		}
		fmt.Fprintf(out, "the capacity has moved by %.0f %%: this pass is thrown away\n", 100*moved(pass))
	}
	best.Notes = append(best.Notes, fmt.Sprintf("in %d attempts the capacity moved by more than %.0f %% each time: this is the steadiest", attempts, 100*s.bound))
	return best, nil
}

// moved returns how far the capacity after a pass was from that before it, as a fraction. An unknown capacity counts as
// moved.
func moved(pass *overload.Run) float64 {
	if !(pass.Capacity > 0) || !(pass.CapacityAfter > 0) {
		return math.Inf(1)
	}
	return math.Abs(pass.CapacityAfter/pass.Capacity - 1)
}

// rotate returns list begun at its n-th entry.
func rotate(list []string, n int) []string { return slices.Concat(list[n:], list[:n]) }
