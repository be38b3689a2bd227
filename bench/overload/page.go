package main

import (
	"fmt"
	"slices"

	"github.com/spillway-go/spillway/internal/report"
	"github.com/spillway-go/spillway/lab/overload"
)

// writePage shows all works on one page, each with the goodput at its loads and the time course of its last pass.
func writePage(name string, f *figures, runs []*overload.Run) error {
	p := &report.Page{
		Title: "Overload, side by side",
		Lead:  "Goodput as a fraction of what the bare server can carry. The yardstick is the best of the fixed limits, found by trying.",
		Notes: []string{fmt.Sprintf("%s on %s, %g s for each load, shape %s, %d passes.", f.Go, f.Platform, f.Seconds, f.Shape, f.Passes)},
	}
	for i, run := range runs {
		w := f.Works[i]
		p.Sections = append(p.Sections, f.section(w, shown(run)))
		for _, note := range w.Notes {
			p.Notes = append(p.Notes, w.Work+": "+note)
		}
	}
	return p.Save(name)
}

// shown is a run without the fixed limits that were best at no load.
func shown(run *overload.Run) *overload.Run {
	var best []string
	for i := range run.Results {
		guard, _ := bestFixed(run.Results, i)
		best = append(best, guard)
	}
	hidden := func(guard string) bool { return isFixed(guard) && !slices.Contains(best, guard) }
	out := *run
	out.Results = slices.DeleteFunc(slices.Clone(run.Results), func(r overload.Result) bool { return hidden(r.Guard) })
	out.Series = slices.DeleteFunc(slices.Clone(run.Series), func(s overload.Series) bool { return hidden(s.Guard) })
	return &out
}

// section takes the bars and charts of a run's own page, and the rows of all passes.
func (f *figures) section(w work, run *overload.Run) report.Section {
	s := report.Section{
		Title: w.Work,
		Text:  fmt.Sprintf("%s. The bare server can serve %.0f requests a second.", w.About, w.Capacity),
		Table: &report.Table{Head: []string{
			"Guard, load", "Goodput", "Of the best fixed limit", "Best", "First 5 s", "p99 ms", "Refused", "Refused p99 ms", "Timed out",
		}},
	}
	for _, section := range run.Page().Sections[:2] { // the goodput, and its course
		s.Bars = append(s.Bars, section.Bars...)
		s.Charts = append(s.Charts, section.Charts...)
	}
	for _, r := range f.Results {
		if r.Work == w.Work {
			s.Table.Rows = append(s.Table.Rows, []string{
				fmt.Sprintf("%s %g×", r.Guard, r.Load), fmt.Sprintf("%.2f", r.Goodput), number(r.OfBestFixed, 2), r.BestFixed,
				fmt.Sprintf("%.2f", r.Goodput5s), number(r.P99, 0), fmt.Sprintf("%.1f %%", 100*r.Shed), number(r.RefusedP99, 0),
				fmt.Sprintf("%.1f %%", 100*r.Timeouts),
			})
		}
	}
	return s
}
