package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"regexp"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/sim"
)

// suiteFigures are the results of a suite, as -json writes them.
type suiteFigures struct {
	Runs    int           `json:"runs"`
	Results []suiteFigure `json:"results"`
}

// A suiteFigure is the result of one policy in one row. Figures without a value are null.
type suiteFigure struct {
	Scenario       string   `json:"scenario"`
	Load           float64  `json:"load"`
	Policy         string   `json:"policy"`
	Goodput        *float64 `json:"goodput"`         // answers in time, as a share of the capacity
	OfBest         *float64 `json:"of_best"`         // goodput, as a share of the best fixed limit's
	OfNone         *float64 `json:"of_none"`         // goodput, as a share of the bare server's
	WronglyRefused *float64 `json:"wrongly_refused"` // share of all requests, where the bare server answers all in time
	P99Ms          *float64 `json:"p99_ms"`
	P99OfBest      *float64 `json:"p99_of_best"`   // p99, as a multiple of the best fixed limit's
	P99OfLowest    *float64 `json:"p99_of_lowest"` // p99, as a multiple of the lowest of a limit with 0.97 of the best goodput
	First5s        *float64 `json:"first5s"`       // goodput over the first five seconds
	RecoveredS     *float64 `json:"recovered_s"`   // from the end of the overload until nothing is refused

	first5sOfBest float64
	remedy        string
}

// roomy is the share of requests answered in time by the bare server from which every refusal is wrong.
const roomy = 0.99

// pick returns the rows that -rows asks for.
func pick(pattern string) ([]suiteRow, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("rows: %w", err)
	}
	all := slices.DeleteFunc(rows(), func(r suiteRow) bool { return !re.MatchString(r.key()) })
	if len(all) == 0 {
		return nil, fmt.Errorf("rows: none matches %q", pattern)
	}
	return all, nil
}

// listRows prints the rows that the pattern picks.
func listRows(pattern string, out io.Writer) error {
	picked, err := pick(pattern)
	if err != nil {
		return err
	}
	for i := range picked {
		fmt.Fprintf(out, "%-32s %v\n", picked[i].key(), length(picked[i].scenario))
	}
	return nil
}

// runSuite plays the rows behind each policy, or does what the other flags ask for.
func runSuite(s settings, out io.Writer) error {
	// The garbage of a simulation is short-lived, and little of it is live.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	picked, err := pick(s.rows)
	if err != nil {
		return err
	}
	if s.sweep {
		return sweep(s, picked, out)
	}
	byRow, err := readGolden(goldenText)
	if err != nil {
		return err
	}
	if s.ablate {
		return ablate(s, picked, byRow, out)
	}
	names := split(s.policies)
	for _, name := range names { // before the first of them takes minutes
		if _, err := gateInRow(name)(time.Second); err != nil {
			return err
		}
	}
	f := suiteFigures{Runs: s.runs, Results: []suiteFigure{}}
	for _, name := range names {
		results, err := playRows(s, picked, byRow, name, gateInRow(name))
		if err != nil {
			return err
		}
		f.Results = append(f.Results, results...)
		printSuite(out, name, results)
	}
	if err := writeJSON(s.json, f); err != nil || s.report == "" {
		return err
	}
	return suitePage(s, f)
}

// A rowGate makes the gates of a row from the p99 of its best fixed limit, 0 if that is not known.
type rowGate func(p99 time.Duration) (func(seed uint64) gates, error)

func gateInRow(name string) rowGate {
	return func(p99 time.Duration) (func(uint64) gates, error) {
		name, err := inRow(name, p99)
		if err != nil {
			return nil, err
		}
		return gateOf(name)
	}
}

// playRows plays each row behind a policy, on all processors.
func playRows(s settings, picked []suiteRow, byRow map[string]*golden, policy string, of rowGate) ([]suiteFigure, error) {
	runs := make([][]*sim.Result, len(picked))
	for i := range runs {
		runs[i] = make([]*sim.Result, s.runs)
	}
	err := parallel(len(picked)*s.runs, func(i int) error {
		r, run := &picked[i/s.runs], i%s.runs
		gate, err := of(byRow[r.key()].bestP99(s))
		if err != nil {
			return err
		}
		seed := s.seed + uint64(run)
		runs[i/s.runs][run], err = sim.Run(r.scenario, seed, gate(seed))
		return err
	}, func(int) error { return nil })
	if err != nil {
		return nil, err
	}
	results := make([]suiteFigure, len(picked))
	for i := range picked {
		results[i] = judge(s, &picked[i], byRow[picked[i].key()], policy, mean(runs[i]))
	}
	return results, nil
}

// judge compares the result of a row with its golden figures, if there are any yet.
func judge(s settings, r *suiteRow, g *golden, policy string, result *sim.Result) suiteFigure {
	f := suiteFigure{
		Scenario: r.scenario.Name, Load: r.load, Policy: policy, Goodput: known(result.Goodput), P99Ms: known(in(time.Millisecond, result.P99)),
		First5s: known(result.First5s), RecoveredS: known(in(time.Second, result.Recovered)),
		first5sOfBest: math.NaN(), remedy: cmp.Or(r.remedy, usualRemedy),
	}
	if g == nil {
		return f
	}
	f.OfBest = known(result.Goodput / over(g.Best.Goodput, s))
	f.OfNone = known(result.Goodput / over(g.Bare.Goodput, s))
	f.P99OfBest = known(in(time.Millisecond, result.P99) / over(g.Best.P99Ms, s))
	f.P99OfLowest = known(in(time.Millisecond, result.P99) / over(g.P99.P99Ms, s))
	f.first5sOfBest = result.First5s / over(g.Best.First5s, s)
	if over(g.Bare.InTime, s) >= roomy {
		f.WronglyRefused = known(result.RefusedInAll)
	}
	return f
}

// fixed returns gates of a fixed limit, or bare ones for a limit of 0. One goroutine uses each of them.
func fixed(n int) gates {
	return func(*sim.Host) (*spillway.Gate, error) {
		if n == 0 {
			return spillway.New(), nil
		}
		return limitOf(n)
	}
}
