package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spillway-go/spillway/lab/overload"
)

// figures are the output of -json: that of examples/overload, for several works.
type figures struct {
	overload.Conditions

	Capacity float64  `json:"capacity_rps"` // of the first work, as slo_ms and deadline_ms
	Shape    string   `json:"shape"`
	Passes   int      `json:"passes"`
	Works    []work   `json:"works"`
	Results  []row    `json:"results"`
	Series   []series `json:"series"`
}

// A work is one kind of request, with the bare server's capacity for it in the last pass.
type work struct {
	Work          string   `json:"work"`
	About         string   `json:"work_about"`
	Capacity      float64  `json:"capacity_rps"`
	CapacityAfter float64  `json:"capacity_after_rps"`
	SLOMillis     float64  `json:"slo_ms"`
	DeadlineMs    float64  `json:"deadline_ms"`
	Notes         []string `json:"notes,omitempty"`
}

// A row is one guard under one load of one work: of several passes the one with the median goodput.
type row struct {
	overload.Result

	Work        string    `json:"work"`
	OfBestFixed *float64  `json:"of_best_fixed"` // goodput as a fraction of the best fixed limit's in the same pass; null without one
	BestFixed   string    `json:"best_fixed,omitempty"`
	PassGoodput []float64 `json:"goodput_passes"` // of all passes
}

// A series is how the last pass went.
type series struct {
	overload.Series

	Work string `json:"work"`
}

// add takes the passes of one work.
func (f *figures) add(s *settings, passes []*overload.Run) {
	last := passes[len(passes)-1]
	if len(f.Works) == 0 {
		f.Conditions, f.Capacity, f.Shape, f.Passes = last.Conditions, last.Capacity, string(s.plan.Shape), s.passes
		f.Seed = s.plan.Seed
	}
	f.Works = append(f.Works, work{
		Work: last.Work, About: last.WorkAbout, Capacity: last.Capacity, CapacityAfter: last.CapacityAfter,
		SLOMillis: last.SLOMillis, DeadlineMs: last.DeadlineMs, Notes: last.Notes,
	})
	f.Results = append(f.Results, rows(passes)...)
	for _, one := range last.Series {
		f.Series = append(f.Series, series{one, last.Work})
	}
}

// rows makes one row of each guard and load, in the order of the first pass.
func rows(passes []*overload.Run) []row {
	out := make([]row, 0, len(passes[0].Results))
	seen := map[string]int{}
	for _, first := range passes[0].Results {
		i := seen[first.Guard]
		seen[first.Guard]++
		var cells []row
		var goodput []float64
		for _, pass := range passes {
			cell := newRow(pass, first.Guard, i)
			cells = append(cells, cell)
			goodput = append(goodput, cell.Goodput)
		}
		slices.SortStableFunc(cells, func(a, b row) int { return cmp.Compare(a.Goodput, b.Goodput) })
		cell := cells[(len(cells)-1)/2]
		cell.PassGoodput = goodput
		out = append(out, cell)
	}
	return out
}

// newRow returns how a guard did under the i-th load of a pass.
func newRow(pass *overload.Run, guard string, i int) row {
	best, yardstick := bestFixed(pass.Results, i)
	out := row{Result: at(pass.Results, guard, i), Work: pass.Work, BestFixed: best}
	if yardstick > 0 {
		out.OfBestFixed = overload.Known(out.Goodput / yardstick)
	}
	return out
}

// at returns a guard's result under the i-th load.
func at(results []overload.Result, guard string, i int) overload.Result {
	for _, r := range results {
		if r.Guard != guard {
			continue
		}
		if i == 0 {
			return r
		}
		i--
	}
	return overload.Result{Guard: guard}
}

// bestFixed returns the fixed limit with the highest goodput under the i-th load, and that goodput; "" and 0 if there is
// none.
func bestFixed(results []overload.Result, i int) (guard string, goodput float64) {
	for _, r := range results {
		if !isFixed(r.Guard) {
			continue
		}
		if r = at(results, r.Guard, i); r.Goodput > goodput {
			guard, goodput = r.Guard, r.Goodput
		}
	}
	return guard, goodput
}

func (f *figures) print(out io.Writer) error {
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "work\tguard\tload\tgoodput\tof best fixed\tbest\tfirst 5 s\tp99 ms\trefused\tover the whole\trefusal p99 ms\t")
	for _, r := range f.Results {
		fmt.Fprintf(w, "%s\t%s\t%gx\t%.2f\t%s\t%s\t%.2f\t%s\t%.0f%%\t%.1f%%\t%s\t\n", r.Work, r.Guard, r.Load, r.Goodput, number(r.OfBestFixed, 2),
			r.BestFixed, r.Goodput5s, number(r.P99, 0), 100*r.Shed, 100*r.ShedAll, number(r.RefusedP99, 0))
	}
	return w.Flush()
}

func number(v *float64, digits int) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, *v)
}

func (f *figures) write(name string) error {
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(data, '\n'), 0o600)
}
