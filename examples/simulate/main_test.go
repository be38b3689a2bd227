package main

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-go/spillway/sim"
)

// short is a step of a few seconds, in coarse slices, so that the test takes none.
func short(load float64) sim.Scenario {
	s := sim.Named("step", load)
	s.Classes[0].Slice = 2 * time.Millisecond
	for i := range s.Phases {
		s.Phases[i].For = 2 * time.Second
	}
	return s
}

func TestPlayWritesTheFigures(t *testing.T) {
	dir := t.TempDir()
	s := settings{load: 3, seed: 1, runs: 2, json: filepath.Join(dir, "figures.json"), report: filepath.Join(dir, "page.html")}
	all, err := contenders("spillway:threshold=0.8,slo=250ms, fixed:8,none,gradient2")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := play(s, short(s.load), all, &out); err != nil {
		t.Fatal(err)
	}

	text, err := os.ReadFile(s.json)
	if err != nil {
		t.Fatal(err)
	}
	var told struct {
		Runs    int              `json:"runs"`
		Results []map[string]any `json:"results"`
	}
	if err := json.Unmarshal(text, &told); err != nil {
		t.Fatal(err)
	}
	if told.Runs != 2 {
		t.Errorf("want 2 runs, got %d", told.Runs)
	}
	if len(told.Results) != len(all) {
		t.Fatalf("want %d results, got %d", len(all), len(told.Results))
	}
	for i, r := range told.Results {
		for _, field := range []string{"goodput", "first5s", "p99_ms", "wrongly_refused", "converged_s", "recovered_s"} {
			if _, ok := r[field]; !ok {
				t.Errorf("result %d lacks %s", i, field)
			}
		}
		if r["policy"] != all[i].name || r["scenario"] != "step" || r["load"] != 3.0 || len(r) != 9 {
			t.Errorf("result %d: %v", i, r)
		}
		if !strings.Contains(out.String(), "\n"+all[i].name+" ") {
			t.Errorf("the table has no row for %s:\n%s", all[i].name, out.String())
		}
	}
	kept, bare := told.Results[1], told.Results[2]
	if kept["goodput"].(float64) < 0.9 || bare["goodput"].(float64) > 0.5 {
		t.Errorf("a limit of 8 keeps the goodput, none does not: %v, %v", kept, bare)
	}
	if bare["recovered_s"] != nil || kept["recovered_s"] == nil {
		t.Errorf("what never comes is null: %v, %v", kept, bare)
	}
	page, err := os.ReadFile(s.report)
	if err != nil || !strings.Contains(string(page), "<h1>step at 3 times the capacity</h1>") {
		t.Errorf("no page: %v", err)
	}
}

func TestSameSeedSameFigures(t *testing.T) {
	figuresOf := func(seed uint64, runs int) string {
		all, err := contenders("vegas")
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		file := filepath.Join(t.TempDir(), "f.json")
		if err := play(settings{load: 2, seed: seed, runs: runs, json: file}, short(2), all, &out); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if first := figuresOf(7, 1); first != figuresOf(7, 1) || first == figuresOf(8, 1) {
		t.Error("the seed decides, and nothing else")
	}
	goodput := func(seed uint64, runs int) float64 {
		var told figures
		if err := json.Unmarshal([]byte(figuresOf(seed, runs)), &told); err != nil {
			t.Fatal(err)
		}
		return *told.Results[0].Goodput
	}
	if want, got := (goodput(7, 1)+goodput(8, 1))/2, goodput(7, 2); want != got {
		t.Errorf("two runs are those of their seeds: want the mean %v, got %v", want, got)
	}
}

func TestList(t *testing.T) {
	var out strings.Builder
	if err := run([]string{"-list", "-load", "4"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if !strings.HasPrefix(lines[1], "step  ") || !strings.Contains(lines[1], " 180s     4x  0.7, then the load") {
		t.Errorf("want step first, got %q", lines[1])
	}
	for _, line := range lines {
		if len(line) > 80 {
			t.Errorf("wider than 80 columns: %q", line)
		}
	}
	scenarios := sim.Library(4)
	for _, s := range scenarios {
		if abouts[s.Name] == "" {
			t.Errorf("%s has no description", s.Name)
		}
	}
	if len(abouts) != len(scenarios) {
		t.Errorf("%d descriptions of %d scenarios", len(abouts), len(scenarios))
	}
	if n := strings.Count(out.String(), "\nsteady "); n != 1 {
		t.Errorf("steady is listed %d times", n)
	}
}

func TestWhatCannotBePlayed(t *testing.T) {
	for want, args := range map[string][]string{
		`unknown scenario "storm"; there are step, step-solid,`:     {"-scenario", "storm"},
		`unknown policy "magic"; there are none, fixed:N, spillway`: {"-policies", "none,magic"},
		`unknown policy ""`:        {"-policies", ""},
		`unknown policy "vegas:9"`: {"-policies", "vegas:9"},
		`policy "fixed": the limit must be a whole number from 1 on`:             {"-policies", "fixed"},
		`policy "fixed:0": the limit must be a whole number from 1 on`:           {"-policies", "fixed:0"},
		`policy "spillway:speed=3": unknown option "speed"; there are`:           {"-policies", "spillway:speed=3"},
		`policy "spillway:slo=fast": time: invalid duration`:                     {"-policies", "spillway:slo=fast"},
		`policy "spillway:threshold=2": shedder: CPUThreshold must be in (0, 1]`: {"-policies", "spillway:threshold=2"},
		"load must be above 0 and at most 100, got 0":                            {"-load", "0"},
		"runs must be in 1..100, got 0":                                          {"-runs", "0"},
		`unexpected argument "step"`:                                             {"step"},
	} {
		err := run(args, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want an error with %q, got %v", args, want, err)
		}
	}
	if err := run([]string{"-help"}, io.Discard, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("want the usage, got %v", err)
	}
}
