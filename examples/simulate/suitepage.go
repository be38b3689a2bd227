package main

import (
	"fmt"

	"github.com/spillway-go/spillway/internal/report"
)

// suitePage shows the figures of a suite as an HTML page.
func suitePage(s settings, f suiteFigures) error {
	page := &report.Page{
		Title: "The suite",
		Lead: "Every scenario at its loads, in virtual time, against the best fixed limit on requests in flight of each row, " +
			"found by a sweep.",
		Notes: []string{note(s)},
	}
	for len(f.Results) > 0 {
		policy, n := f.Results[0].Policy, 0
		for n < len(f.Results) && f.Results[n].Policy == policy {
			n++
		}
		page.Sections = append(page.Sections, suiteSection(policy, f.Results[:n])...)
		f.Results = f.Results[n:]
	}
	return page.Save(s.report)
}

func suiteSection(policy string, results []suiteFigure) []report.Section {
	sum := &report.Table{Head: []string{"summary", policy}}
	for _, line := range summarize(results).lines() {
		sum.Rows = append(sum.Rows, []string{line[0], line[1]})
	}
	table := &report.Table{Head: append([]string{"scenario"}, suiteColumns...)}
	for i := range results {
		table.Rows = append(table.Rows, append([]string{results[i].Scenario}, suiteCells(&results[i])...))
	}
	sections := []report.Section{{Title: policy, Table: sum}, {Table: table}}
	if worse := worseThanNone(results); len(worse) > 0 {
		remedies := &report.Table{Head: []string{"below 0.95 of the bare server", "of none", "remedy"}}
		for _, f := range worse {
			remedies.Rows = append(remedies.Rows, []string{f.key(), fmt.Sprintf("%.2f", *f.OfNone), f.remedy})
		}
		sections = append(sections, report.Section{Table: remedies})
	}
	return sections
}
