package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"github.com/spillway-go/spillway/sim"
)

const (
	sweepSeeds = 3
	sweepMost  = 4096
	nearBest   = 0.97 // of the greatest goodput: among such limits the lowest p99 counts
)

// sweepStep is the factor between the limits that are tried where it matters.
var sweepStep = math.Pow(2, 1.0/3)

// sweep finds the best fixed limit of each row and writes the golden file; rows that are not picked stay as they are.
func sweep(s settings, picked []suiteRow, out io.Writer) error {
	text, err := os.ReadFile(s.golden)
	if err != nil {
		return err
	}
	byRow, err := readGolden(text)
	if err != nil {
		return err
	}
	stale := func(r suiteRow) int {
		if g := byRow[r.key()]; g == nil || g.Sum != r.sum() {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(picked, func(a, b suiteRow) int { return stale(a) - stale(b) })
	found := make([]*golden, len(picked))
	return parallel(len(picked), func(i int) error {
		var err error
		found[i], err = best(&picked[i])
		return err
	}, func(i int) error {
		g := found[i]
		byRow[g.Row] = g
		fmt.Fprintf(out, "%-32s bare %.3f  limit %4d %.3f  p99 limit %4d %.3f %6.0f ms\n", g.Row, average(g.Bare.Goodput),
			g.BestLimit, average(g.Best.Goodput), g.P99Limit, average(g.P99.Goodput), average(g.P99.P99Ms))
		return writeGolden(s.golden, byRow) // at once: the whole takes long, and may be interrupted
	})
}

// A search keeps the measurements of each limit.
type search struct {
	row  *suiteRow
	seen map[int]*measured
	most int // least number in flight in the bare server; a greater limit has no effect
}

// best looks at limits from 1 to 4096, in steps of 2 with one seed first, then closer and with more seeds where it matters.
func best(r *suiteRow) (*golden, error) {
	s := &search{row: r, seen: map[int]*measured{}}
	bare, err := s.measure(0, sweepSeeds)
	if err != nil {
		return nil, err
	}
	widest := min(sweepMost, 2*s.most)
	most := 0.0
	for n, lost := 1, 0; n <= widest && lost < 3; n *= 2 {
		if _, err := s.measure(n, 1); err != nil {
			return nil, err
		}
		most = max(most, s.goodput(n, 1))
		if lost++; s.goodput(n, 1) >= 0.7*most {
			lost = 0
		}
	}
	for seeds := 1; seeds <= sweepSeeds; seeds++ {
		for _, n := range s.close(seeds) {
			if _, err := s.measure(n, seeds); err != nil {
				return nil, err
			}
		}
	}
	g := &golden{Row: r.key(), Sum: r.sum(), Bare: *bare, BestLimit: s.greatest(sweepSeeds)}
	g.Best = *s.seen[g.BestLimit]
	least := math.Inf(1)
	for _, n := range s.limits(sweepSeeds) {
		m := s.seen[n]
		if p99 := average(m.P99Ms); average(m.Goodput) >= nearBest*average(g.Best.Goodput) && p99 >= 0 && p99 < least {
			least, g.P99Limit, g.P99 = p99, n, *m
		}
	}
	return g, nil
}

// close returns the limits that may be the best, or have the lowest p99, judged by the given number of seeds. With one
// seed it adds some limits between those that were tried.
func (s *search) close(seeds int) []int {
	most := s.goodput(s.greatest(1), 1)
	var good []int
	for _, n := range s.limits(1) {
		if n > 0 && s.goodput(n, 1) >= 0.9*most {
			good = append(good, n)
		}
	}
	if len(good) == 0 {
		return nil
	}
	var all []int
	if seeds == 1 {
		// The lowest p99 is found where the goodput begins to suffice, as a rule, and the greatest goodput anywhere.
		peak := max(1, s.greatest(1))
		for n := float64(good[0]) / 2; n <= 2*float64(good[0]); n *= sweepStep {
			all = append(all, int(math.Round(n)))
		}
		for n := float64(peak) / 2; n <= 2*float64(peak); n *= sweepStep {
			all = append(all, int(math.Round(n)))
		}
	} else {
		for _, n := range good {
			if s.goodput(n, 1) >= 0.955*most && (n <= 4*good[0] || s.goodput(n, 1) >= 0.985*most) {
				all = append(all, n)
			}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return slices.DeleteFunc(all, func(n int) bool { return n < 1 || n > sweepMost })
}

// limits returns the limits that were measured with at least that many seeds; 0 is no limit.
func (s *search) limits(seeds int) []int {
	var all []int
	for n, m := range s.seen {
		if len(m.Goodput) >= seeds {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all
}

// greatest returns the limit with the greatest goodput among those with at least that many seeds.
func (s *search) greatest(seeds int) int {
	found, most := 0, -1.0
	for _, n := range s.limits(seeds) {
		if g := s.goodput(n, seeds); g > most {
			found, most = n, g
		}
	}
	return found
}

func (s *search) goodput(n, seeds int) float64 { return average(s.seen[n].Goodput[:seeds]) }

// measure plays the row behind a limit for the given number of seeds, except those already played.
func (s *search) measure(n, seeds int) (*measured, error) {
	m := s.seen[n]
	if m == nil {
		m = &measured{}
		s.seen[n] = m
	}
	for seed := len(m.Goodput) + 1; seed <= seeds; seed++ {
		result, err := sim.Run(s.row.scenario, uint64(seed), fixed(n))
		if err != nil {
			return nil, err
		}
		m.add(result)
		for _, p := range result.Series {
			s.most = max(s.most, int(p.InFlight))
		}
	}
	return m, nil
}

func (m *measured) add(r *sim.Result) {
	m.Goodput = append(m.Goodput, brief(r.Goodput))
	m.First5s = append(m.First5s, brief(r.First5s))
	m.P99Ms = append(m.P99Ms, brief(in(time.Millisecond, r.P99)))
	m.InTime = append(m.InTime, brief(r.InTime))
}

// brief rounds a figure for the golden file; -1 is none.
func brief(v float64) float64 {
	if math.IsNaN(v) {
		return -1
	}
	return math.Round(v*1e5) / 1e5
}

func average(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
