package overload

import (
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spillway-go/spillway/internal/report"
)

// The values of -report that are not file names.
const (
	reportTemp = "temp"
	reportNone = "none"
)

// grain is the resolution of the charts. With a finer one, noise would hide the trend.
const grain = 500 * time.Millisecond

// writeReport writes the page where o.report says, and returns where that is.
func writeReport(name string, run *Run) (string, error) {
	var (
		f   *os.File
		err error
	)
	switch name {
	case reportNone, "":
		return "", nil
	case reportTemp:
		f, err = os.CreateTemp("", "spillway-overload-*.html")
	default:
		f, err = os.Create(name)
	}
	if err != nil {
		return "", err
	}
	err = run.Page().Write(f)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return f.Name(), err
}

// Page presents the run. The loads follow one another on the time axis, without the light load between them, so that
// one picture shows all guards.
func (run *Run) Page() *report.Page {
	p := &report.Page{
		Title: "What is left of the work in an overload",
		Lead:  run.lead(),
		Sections: []report.Section{
			{
				Title: "Goodput",
				Text: fmt.Sprintf("Answers within %.0f ms, as a share of what the server can carry (%.0f requests a second), over the last half of each load. Below the capacity no more than the load itself can be had; a few percent above 100 are chance.",
					run.SLOMillis, run.Capacity),
				Bars: run.bars(),
			},
			{
				Title: "Over time",
				Text: "The load of each stretch stands above it, as a multiple of the capacity. The light load that every step up begins from " +
					"is not drawn, and a server that did not find back to health in it was replaced before the next step.",
				Charts: run.comparison(),
			},
		},
		Notes: run.method(),
	}
	for i := range run.Series {
		if s, ok := run.own(&run.Series[i]); ok {
			p.Sections = append(p.Sections, s)
		}
	}
	p.Sections = append(p.Sections, report.Section{Title: "All figures", Table: run.table()})
	return p
}

// lead sums up in a sentence the result at the most telling load: five times the capacity, or otherwise the heaviest.
func (run *Run) lead() string {
	var load float64
	for _, r := range run.Results {
		if r.Load == 5 {
			load = 5
			break
		}
		load = max(load, r.Load)
	}
	var kept []string
	for _, r := range run.Results {
		if r.Load == load {
			kept = append(kept, fmt.Sprintf("%s %.0f %%", title(r.Guard), 100*r.Goodput))
		}
	}
	return fmt.Sprintf("At %g times the load that it can carry, the server keeps this share of its capacity as useful work: %s.",
		load, strings.Join(dedupe(kept), ", "))
}

func dedupe(list []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, s := range list {
		if name, _, _ := strings.Cut(s, " "); !seen[name] {
			seen[name] = true
			out = append(out, s)
		}
	}
	return out
}

func title(guard string) string {
	if guard == "none" {
		return "bare"
	}
	return guard
}

// role gives each guard its colour.
func (run *Run) role(guard string) report.Role {
	names := make([]string, len(run.Series))
	for i := range run.Series {
		names[i] = run.Series[i].Guard
	}
	return report.Roles(names)[guard]
}

func (run *Run) bars() []report.BarGroup {
	var groups []report.BarGroup
	place := map[string]int{} // by load and its number of earlier runs, because a load may be run twice
	for _, s := range run.Series {
		times := map[float64]int{}
		for _, r := range run.Results {
			if r.Guard != s.Guard {
				continue
			}
			times[r.Load]++
			key := fmt.Sprint(r.Load, times[r.Load])
			i, ok := place[key]
			if !ok {
				i = len(groups)
				place[key] = i
				name := fmt.Sprintf("%g× capacity", r.Load)
				if times[r.Load] > 1 {
					name += " again"
				}
				groups = append(groups, report.BarGroup{Title: name})
			}
			groups[i].Bars = append(groups[i].Bars, report.Bar{
				Name: title(r.Guard), Text: fmt.Sprintf("%.0f %%", 100*r.Goodput), Value: r.Goodput, Role: run.role(r.Guard),
			})
		}
	}
	return groups
}

func (run *Run) method() []string {
	notes := []string{
		fmt.Sprintf("Work: %s (%s).", run.Work, run.WorkAbout),
		"The clients form an open loop: they arrive by a Poisson process and do not wait for each other. Latency counts from the intended send time.",
		fmt.Sprintf("A client gives up after %.0f ms; an answer after %.0f ms is worthless.", run.DeadlineMs, run.SLOMillis),
		fmt.Sprintf("%s on %s. Seed %d, %g s for each load.", run.Go, run.Platform, run.Seed, run.Seconds),
	}
	if run.CapacityAfter > 0 {
		notes = append(notes, fmt.Sprintf("Capacity of the bare server: %.0f requests a second before, %.0f after.", run.Capacity, run.CapacityAfter))
	}
	for _, n := range run.Notes {
		notes = append(notes, strings.ToUpper(n[:1])+n[1:]+".")
	}
	return notes
}

func (run *Run) table() *report.Table {
	t := &report.Table{Head: []string{
		"Guard, load", "Offered /s", "Goodput", "Goodput, whole", "First 5 s", "p50 ms", "p99 ms", "Refused", "Refused p99 ms",
		"Timed out", "First refusal s", "Recovered s",
	}}
	for _, r := range run.Results {
		t.Rows = append(t.Rows, []string{
			fmt.Sprintf("%s %g×", title(r.Guard), r.Load), fmt.Sprintf("%.0f", r.Offered), part(r.Goodput), part(r.GoodputAll), part(r.Goodput5s),
			number(r.P50, 0), number(r.P99, 0), part(r.Shed), number(r.RefusedP99, 0), part(r.Timeouts), number(r.FirstRefusal, 2), number(r.Recovered, 1),
		})
	}
	return t
}

func part(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }

// known returns the value of p, or a gap.
func known(p *float64) float64 {
	if p == nil {
		return math.NaN()
	}
	return *p
}
