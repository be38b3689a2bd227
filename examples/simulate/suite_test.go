package main

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/sim"
)

// A scenario that was changed needs `go run ./examples/simulate -sweep -rows '^name@'`.
func TestGoldenFileIsInStepWithTheRows(t *testing.T) {
	byRow, err := readGolden(goldenText)
	require.NoError(t, err)
	all := rows()
	require.GreaterOrEqual(t, len(all), 140)
	keys := map[string]bool{}
	for i := range all {
		key := all[i].key()
		require.False(t, keys[key], "%s is there twice", key)
		keys[key] = true
		g := byRow[key]
		require.NotNil(t, g, "%s has no golden figures", key)
		require.Equal(t, all[i].sum(), g.Sum, "%s has changed since", key)
		for _, m := range []measured{g.Bare, g.Best, g.P99} {
			require.Len(t, m.Goodput, sweepSeeds, key)
			require.Len(t, m.P99Ms, sweepSeeds, key)
		}
		require.GreaterOrEqual(t, average(g.Best.Goodput), average(g.Bare.Goodput), key)
		require.GreaterOrEqual(t, average(g.P99.Goodput), nearBest*average(g.Best.Goodput), key)
	}
	require.Len(t, byRow, len(all), "no golden figures of rows that are gone")
}

// Every scenario of the library is in the suite, but for the step of idle-step and the like under names of their own.
func TestSuiteHasTheWholeLibrary(t *testing.T) {
	names := map[string]bool{}
	for _, r := range rows() {
		names[r.scenario.Name] = true
	}
	for _, s := range sim.Library(5) {
		name, _, _ := strings.Cut(s.Name, "-70")
		name, _, _ = strings.Cut(name, "-9")
		require.True(t, names[name], s.Name)
	}
}

// Work that does not yield delays the steps of the law, too. They are no standstill of the process, and a cold start of few answers is
// measured.
func TestWorkThatDoesNotYieldKeepsItsGoodput(t *testing.T) {
	if race.Enabled {
		t.Skip("a simulation is one goroutine: its figures are checked without the race detector, ten times faster")
	}
	spillway, err := gateOf("spillway")
	require.NoError(t, err)
	for _, c := range []struct {
		scenario sim.Scenario
		least    float64 // of the capacity, in the mean
	}{
		{solidAndQuota(1.05), 0.9},                      // 0.51 with a credit for late steps
		{cold("cold-2x60ms-solid", solidPool)(10), 0.8}, // 0.77 if it is not taken back, 0.49 if only a second is looked at
	} {
		const seeds = 6
		kept := 0.0
		for seed := range uint64(seeds) {
			got, err := sim.Run(c.scenario, 1+seed, spillway(1+seed))
			require.NoError(t, err)
			kept += got.Goodput / seeds
		}
		t.Logf("%s: %.3f", c.scenario.Name, kept)
		require.Greater(t, kept, c.least, c.scenario.Name)
	}
}

func TestSuiteWritesTheFigures(t *testing.T) {
	dir := t.TempDir()
	file, page := filepath.Join(dir, "f.json"), filepath.Join(dir, "p.html")
	var out strings.Builder
	require.NoError(t, run([]string{
		"-suite", "-rows", `^(server-step|server-dependency)@`, "-policies", "spillway,none", "-runs", "2", "-json", file, "-report", page,
	}, &out, io.Discard))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var told struct {
		Runs    int              `json:"runs"`
		Results []map[string]any `json:"results"`
	}
	require.NoError(t, json.Unmarshal(text, &told))
	require.Equal(t, 2, told.Runs)
	require.Len(t, told.Results, 2*4)
	for _, r := range told.Results {
		require.Len(t, r, 12)
		for _, field := range []string{
			"scenario", "load", "policy", "goodput", "of_best", "of_none", "wrongly_refused", "p99_ms", "p99_of_best", "p99_of_lowest", "first5s", "recovered_s",
		} {
			require.Contains(t, r, field)
		}
		calm := r["scenario"] == "server-dependency"
		require.Equal(t, calm, r["wrongly_refused"] != nil, "it counts where there is room for all: %v", r)
		if r["policy"] == "none" {
			require.InDelta(t, 1, r["of_none"], 1e-3, "the golden figures are those of the same seeds: %v", r)
		} else {
			require.Greater(t, r["of_best"], 0.9, "%v", r)
		}
	}
	require.Regexp(t, `rows below 0.95 / 0.90 / 0.85 of the best fixed limit +0 / 0 / 0`, out.String())
	html, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(html), "server-dependency")
}

func figureOf(name string, ofBest, ofNone, p99OfBest, wrong, first5s float64) suiteFigure {
	return suiteFigure{
		Scenario: name, Load: 2, OfBest: known(ofBest), OfNone: known(ofNone), P99OfBest: known(p99OfBest), WronglyRefused: known(wrong),
		first5sOfBest: first5s, remedy: "mend " + name,
	}
}

func TestSummary(t *testing.T) {
	nan := math.NaN()
	results := []suiteFigure{
		figureOf("a", 1.2, 3, 0.9, nan, 1.5), figureOf("b", 0.94, 0.94, 1.6, 0.011, 0.5), figureOf("c", 0.89, 1, 2.5, 0.01, nan),
		figureOf("d", 0.5, nan, 1, 0.5, 1), figureOf("e", nan, nan, nan, nan, nan),
	}
	sum := summarize(results)
	require.Equal(t, []int{5, 3, 2, 1, 2, 1, 2}, []int{sum.rows, sum.below95, sum.below90, sum.below85, sum.slow, sum.slower, sum.wrong})
	require.InDelta(t, (1+0.94+0.89+0.5)/4, sum.ofBest, 1e-9)
	require.InDelta(t, (0.9+1.6+2.5+1)/4, sum.p99OfBest, 1e-9)
	require.InDelta(t, (1+0.5+1)/3, sum.first5sOfBest, 1e-9)
	require.Equal(t, "d@2", sum.worstRow)
	var out strings.Builder
	printSuite(&out, "mine", results)
	require.Contains(t, out.String(), "below 0.95 of the bare server:\n  b@2                            0.94  mend b\n")
	require.NotContains(t, out.String(), "mend c")
}

func TestAblationComparesEachRowWithTheDefault(t *testing.T) {
	of := func(a, b, c float64) []suiteFigure {
		return []suiteFigure{figureOf("a", a, 1, 1, 0, 1), figureOf("b", b, 1, 2, 0, 1), figureOf("c", c, 1, 3, 0, 1)}
	}
	a := compareWith(of(1, 0.9, 0.8), of(0.7, 0.96, 0.78), "odd")
	require.Equal(t, 2, a.moved)
	require.Equal(t, []string{
		"odd", "2", "0.700", "a@2", "-0.300", "a@2", "+0.060", "b@2", "2", "2.000", "0",
	}, a.cells())
	var out strings.Builder
	require.NoError(t, run([]string{"-ablate", "-rows", "^server-step@2$", "-runs", "1"}, &out, io.Discard))
	require.Contains(t, out.String(), "\ndefault  ")
}

// The sweep of a small row: a pool of 8 at five times its capacity.
func TestSweepFindsTheBestLimit(t *testing.T) {
	scenario := sim.Named("pool", 5)
	scenario.Phases = []sim.Phase{{For: time.Second, Load: 0.5}, {For: 4 * time.Second, Load: 5, Measured: true}}
	g, err := best(&suiteRow{load: 5, scenario: scenario})
	require.NoError(t, err)
	require.Less(t, average(g.Bare.Goodput), 0.4)
	require.Greater(t, average(g.Best.Goodput), 0.98)
	require.GreaterOrEqual(t, g.BestLimit, 8)
	require.LessOrEqual(t, g.BestLimit, 80, "with 80 the last waits for 250 ms")
	require.InDelta(t, 8, g.P99Limit, 2, "fewer leave the pool idle, more wait")
	require.Less(t, average(g.P99.P99Ms), 60.0)
	require.Len(t, g.P99.First5s, sweepSeeds)

	file := filepath.Join(t.TempDir(), "best.json")
	require.NoError(t, os.WriteFile(file, []byte("[]"), 0o600))
	require.NoError(t, run([]string{"-sweep", "-rows", "^server-dependency@", "-golden", file}, io.Discard, io.Discard))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	byRow, err := readGolden(text)
	require.NoError(t, err)
	was, err := readGolden(goldenText)
	require.NoError(t, err)
	require.Len(t, byRow, 1)
	require.Equal(t, was["server-dependency@0.5"], byRow["server-dependency@0.5"], "a sweep gives the same to the bit")
}

func TestLastingMovesTheEvents(t *testing.T) {
	s := lasting(sim.Named("slow-dependency", 0), 10*sec, 30*sec, 20*sec)
	require.Equal(t, []time.Duration{10 * sec, 30 * sec, 20 * sec}, []time.Duration{s.Phases[0].For, s.Phases[1].For, s.Phases[2].For})
	require.Equal(t, 10*sec, s.Events[0].At)
	require.Equal(t, 40*sec, s.Events[1].At)
	require.Equal(t, time.Minute, sim.Named("slow-dependency", 0).Events[0].At)
}

func TestAnObjectiveInTermsOfTheBest(t *testing.T) {
	name, err := inRow("spillway:threshold=0.8,slo=2.5p99", 40*ms)
	require.NoError(t, err)
	require.Equal(t, "spillway:threshold=0.8,slo=100ms", name)
	name, err = inRow("spillway:slo=2p99", ms)
	require.NoError(t, err)
	require.Equal(t, "spillway:slo=10ms", name)
	_, err = inRow("spillway:slo=2.p.99p99", ms)
	require.NoError(t, err, "it is none, and gateOf says so")
	_, err = inRow("spillway:slo=2..5p99", ms)
	require.ErrorContains(t, err, `policy "spillway:slo=2..5p99"`)
	_, err = inRow("spillway:slo=2p99", 0)
	require.ErrorContains(t, err, "a row has no golden figures")
}

func TestParallelDoesAllOrSaysWhyNot(t *testing.T) {
	var worked atomic.Int64
	var sum int
	require.NoError(t, parallel(100, func(i int) error { worked.Add(int64(i)); return nil }, func(i int) error { sum += i; return nil }))
	require.Equal(t, 4950, sum)
	require.EqualValues(t, 4950, worked.Load())
	bad := errors.New("bad")
	worked.Store(0)
	require.ErrorIs(t, parallel(10000, func(i int) error {
		worked.Add(1)
		if i == 3 {
			return bad
		}
		return nil
	}, func(int) error { return nil }), bad)
	require.Less(t, worked.Load(), int64(10000), "the rest is left")
}

func TestListOfRows(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run([]string{"-list", "-suite", "-rows", "^pool@"}, &out, io.Discard))
	require.Equal(t, 5, strings.Count(out.String(), "\n"))
	require.Contains(t, out.String(), "pool@1.15                        50s\n")
}

func TestSuitesThatCannotBePlayed(t *testing.T) {
	for want, args := range map[string][]string{
		`rows: none matches "nothing"`: {"-suite", "-rows", "nothing"},
		"rows: error parsing regexp":   {"-suite", "-rows", "("},
		`unknown policy "magic"`:       {"-suite", "-policies", "magic", "-rows", "^server-step@2$"},
		"no such file":                 {"-sweep", "-rows", "^server-step@2$", "-golden", "nowhere/best.json"},
	} {
		require.ErrorContains(t, run(args, io.Discard, io.Discard), want)
	}
}
