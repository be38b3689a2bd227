package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/lab/overload"
)

func settled(t *testing.T, args ...string) *settings {
	t.Helper()
	s, err := parse(args, &bytes.Buffer{})
	require.NoError(t, err)
	return s
}

func TestFlags(t *testing.T) {
	s := settled(t, "-guards", "a,b", "-works", "cpu,db", "-loads", "2,5", "-seconds", "8", "-shape", "storm")
	require.Equal(t, []string{"a", "b"}, s.guards)
	require.Equal(t, []string{"cpu", "db"}, s.works)
	require.Equal(t, []float64{2, 5}, s.plan.Loads)
	require.Equal(t, 8*time.Second, s.plan.Each)
	require.Equal(t, overload.Storm, s.plan.Shape)
	require.True(t, s.plan.Recheck, "without it no pass could be rejected")
	for _, args := range [][]string{
		{"-passes", "0"}, {"-passes", "101"}, {"-bound", "0"}, {"-bound", "NaN"}, {"-sweep", "1,x"}, {"-sweep", "0"}, {"-loads", "x"}, {"stray"},
	} {
		_, err := parse(args, &bytes.Buffer{})
		require.Error(t, err, "%q", args)
	}
}

func TestFixedLimitsAreAddedUnlessSomeAreAskedFor(t *testing.T) {
	limits := func(work string, args ...string) []string {
		guards, err := settled(t, args...).limits(work)
		require.NoError(t, err)
		return guards
	}
	require.Equal(t, []string{"fixed:1", "fixed:2", "fixed:4", "fixed:8"}, limits("cpusolid", "-guards", "spillway"))
	require.Equal(t, []string{"fixed:4", "fixed:8", "fixed:16", "fixed:32"}, limits("something", "-guards", "spillway"))
	require.Empty(t, limits("cpu", "-guards", "spillway,fixed:8"))
	require.Empty(t, limits("cpu", "-guards", "spillway", "-sweep", "none"))
	require.Equal(t, []string{"fixed:3"}, limits("cpu", "-guards", "spillway,fixed:8", "-sweep", "3,8"))
}

// pass is a run of one work in which each guard has one goodput for each load.
func pass(before, after float64, loads []float64, goodput map[string][]float64, order ...string) *overload.Run {
	run := &overload.Run{Work: "cpu", Capacity: before, CapacityAfter: after}
	for _, guard := range order {
		for i, load := range loads {
			run.Results = append(run.Results, overload.Result{Guard: guard, Load: load, Goodput: goodput[guard][i]})
		}
		run.Series = append(run.Series, overload.Series{Guard: guard})
	}
	return run
}

func TestYardstickIsTheBestFixedLimitOfTheSameLoad(t *testing.T) {
	run := pass(100, 100, []float64{2, 5}, map[string][]float64{
		"none": {0.1, 0}, "spillway": {0.9, 0.95}, "fixed:4": {0.8, 1}, "fixed:8": {0.9, 0.5},
	}, "none", "spillway", "fixed:4", "fixed:8")
	all := rows([]*overload.Run{run})
	require.Len(t, all, 8)
	want := map[string]float64{"none 2": 0.1 / 0.9, "spillway 2": 1, "spillway 5": 0.95, "fixed:4 2": 0.8 / 0.9, "fixed:8 5": 0.5, "none 5": 0}
	for _, r := range all {
		key := r.Guard + " " + string(rune('0'+int(r.Load)))
		if v, ok := want[key]; ok {
			require.InDelta(t, v, *r.OfBestFixed, 1e-9, key)
		}
		require.Equal(t, map[float64]string{2: "fixed:8", 5: "fixed:4"}[r.Load], r.BestFixed)
	}
}

func TestNoYardstickWithoutFixedLimits(t *testing.T) {
	for _, fixed := range [][]float64{nil, {0}} {
		order := []string{"spillway"}
		if fixed != nil {
			order = append(order, "fixed:1")
		}
		run := pass(1, 1, []float64{2}, map[string][]float64{"spillway": {0.5}, "fixed:1": fixed}, order...)
		require.Nil(t, rows([]*overload.Run{run})[0].OfBestFixed)
	}
}

// The ratio of a cell is that of the pass that the cell is from.
func TestCellIsThatOfTheMedianPass(t *testing.T) {
	var passes []*overload.Run
	for _, g := range []float64{0.9, 0.5, 0.8} {
		passes = append(passes, pass(100, 100, []float64{2}, map[string][]float64{"a": {g}, "fixed:1": {g + 0.1}}, "a", "fixed:1"))
	}
	all := rows(passes)
	require.InDelta(t, 0.8, all[0].Goodput, 0)
	require.InDelta(t, 0.8/0.9, *all[0].OfBestFixed, 1e-9)
	require.Equal(t, []float64{0.9, 0.5, 0.8}, all[0].PassGoodput)
}

// A load may come twice, as the light one before and after a storm.
func TestLoadsThatComeTwiceAreKeptApart(t *testing.T) {
	run := pass(100, 100, []float64{0.8, 3, 0.8}, map[string][]float64{"a": {0.8, 0.5, 0.4}, "fixed:1": {0.8, 1, 0.6}}, "a", "fixed:1")
	all := rows([]*overload.Run{run, run})
	require.InDelta(t, 0.8, all[0].Goodput, 0)
	require.InDelta(t, 0.4, all[2].Goodput, 0)
	require.InDelta(t, 0.4/0.6, *all[2].OfBestFixed, 1e-9)
}

// serves returns what measures by handing out runs in turn, and what it was asked for.
func serves(runs ...*overload.Run) (func(overload.Plan) (*overload.Run, error), *[]overload.Plan) {
	var asked []overload.Plan
	return func(p overload.Plan) (*overload.Run, error) {
		asked = append(asked, p)
		if len(asked) > len(runs) {
			return nil, errors.New("asked too often")
		}
		return runs[len(asked)-1], nil
	}, &asked
}

func TestPassIsRepeatedUntilTheCapacityStays(t *testing.T) {
	steady, shaky, lost := &overload.Run{Capacity: 100, CapacityAfter: 95}, &overload.Run{Capacity: 100, CapacityAfter: 80}, &overload.Run{Capacity: 100}
	s := settled(t, "-guards", "a", "-sweep", "none")
	measure, asked := serves(shaky, lost, steady)
	var out bytes.Buffer
	got, err := s.measure("cpu", measure, &out)
	require.NoError(t, err)
	require.Same(t, steady, got[0])
	require.Len(t, *asked, 3)
	require.Empty(t, steady.Notes)
	require.Contains(t, out.String(), "moved by 20 %: this pass is thrown away")
}

func TestPassIsNotRepeatedForEver(t *testing.T) {
	worst, bad, worse := &overload.Run{Capacity: 100, CapacityAfter: 50}, &overload.Run{Capacity: 100, CapacityAfter: 85}, &overload.Run{Capacity: 100, CapacityAfter: 130}
	measure, _ := serves(worst, bad, worse)
	got, err := settled(t, "-guards", "a", "-sweep", "none").measure("cpu", measure, &bytes.Buffer{})
	require.NoError(t, err)
	require.Same(t, bad, got[0], "the steadiest is kept")
	require.Contains(t, bad.Notes[0], "in 3 attempts")
}

func TestGuardsChangePlaces(t *testing.T) {
	steady := &overload.Run{Capacity: 1, CapacityAfter: 1}
	measure, asked := serves(steady, steady, steady)
	_, err := settled(t, "-guards", "a,b,c", "-sweep", "none", "-passes", "3", "-seed", "7").measure("cpu", measure, &bytes.Buffer{})
	require.NoError(t, err)
	var orders [][]string
	for i, p := range *asked {
		orders = append(orders, p.Guards)
		require.Equal(t, uint64(7+i), p.Seed)
		require.Equal(t, "cpu", p.Work)
	}
	require.Equal(t, [][]string{{"a", "b", "c"}, {"b", "c", "a"}, {"c", "a", "b"}}, orders)
}

func TestMeasureFails(t *testing.T) {
	measure, _ := serves()
	_, err := settled(t, "-guards", "a").measure("cpu", measure, &bytes.Buffer{})
	require.ErrorContains(t, err, "asked too often")
	require.Error(t, run(t.Context(), &overload.Config{}, []string{"-guards", "nobody"}, &bytes.Buffer{}))
}

func TestFiguresAndPage(t *testing.T) {
	run := pass(100, 101, []float64{2}, map[string][]float64{"spillway": {0.9}, "fixed:4": {0.8}, "fixed:8": {1}}, "spillway", "fixed:4", "fixed:8")
	s := settled(t, "-guards", "spillway", "-works", "cpu,db")
	f := &figures{}
	f.add(s, []*overload.Run{run})
	second := *run
	second.Work = "db"
	f.add(s, []*overload.Run{&second})

	dir := t.TempDir()
	name := filepath.Join(dir, "f.json")
	require.NoError(t, f.write(name))
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	var got struct {
		Capacity float64          `json:"capacity_rps"`
		Works    []map[string]any `json:"works"`
		Results  []map[string]any `json:"results"`
		Series   []map[string]any `json:"series"`
	}
	require.NoError(t, json.Unmarshal(data, &got))
	require.Equal(t, 100.0, got.Capacity)
	require.Len(t, got.Works, 2)
	require.Len(t, got.Results, 6)
	require.Len(t, got.Series, 6)
	require.Equal(t, "db", got.Results[3]["work"])
	for _, field := range []string{"guard", "load", "goodput", "of_best_fixed", "p99_ms", "refused_p99_ms", "work"} {
		require.Contains(t, got.Results[0], field)
	}
	var out bytes.Buffer
	require.NoError(t, f.print(&out))
	require.Contains(t, out.String(), "0.90")

	require.Equal(t, []overload.Series{{Guard: "spillway"}, {Guard: "fixed:8"}}, shown(run).Series, "the limits that were best at no load stay out")
	page := filepath.Join(dir, "f.html")
	require.NoError(t, writePage(page, f, []*overload.Run{run, &second}))
	require.FileExists(t, page)
}

// The file says what was refused over the whole load, and by which SLO and deadline each work was judged.
func TestFileNamesTheFiguresOfEachWork(t *testing.T) {
	run := pass(300, 300, []float64{0.5}, map[string][]float64{"spillway": {0.49}}, "spillway")
	run.Work, run.SLOMillis, run.DeadlineMs, run.Results[0].ShedAll = "slow", 20_000, 21_000, 0.25
	all := &figures{}
	all.add(settled(t), []*overload.Run{run})
	name := filepath.Join(t.TempDir(), "figures.json")
	require.NoError(t, all.write(name))
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	var file struct {
		Works, Results []map[string]any
	}
	require.NoError(t, json.Unmarshal(data, &file))
	require.InDelta(t, 0.25, file.Results[0]["shed_all"], 0)
	require.InDelta(t, 20_000, file.Works[0]["slo_ms"], 0)
	require.InDelta(t, 21_000, file.Works[0]["deadline_ms"], 0)
}

func TestEveryWorkHasLimitsToLookAmong(t *testing.T) {
	for _, w := range overload.Works() {
		require.Contains(t, sweeps, w.Name)
	}
}
