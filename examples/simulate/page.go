package main

import (
	"fmt"
	"slices"

	"github.com/spillway-go/spillway/internal/report"
	"github.com/spillway-go/spillway/sim"
)

// writePage shows the figures of the results as an HTML page, and how the first run of each went.
func writePage(s settings, all []contender, results, firsts []*sim.Result) error {
	bars := report.BarGroup{Title: "Goodput, as a share of the capacity"}
	table := &report.Table{Head: append([]string{"policy"}, columns...)}
	useful := report.Chart{Title: "Answers in time", Unit: "% of the capacity", Marks: []report.Mark{{Y: 100, Name: "capacity"}}}
	inFlight := report.Chart{Title: "Requests in flight behind the gate", Log: true, Min: 1}
	roles := report.Roles(names(all))
	for i, r := range results {
		role := roles[all[i].name]
		bars.Bars = append(bars.Bars, report.Bar{Name: all[i].name, Text: cell("%.1f %%", 100*r.Goodput), Value: r.Goodput, Role: role})
		table.Rows = append(table.Rows, append([]string{all[i].name}, cells(r)...))
		x, served, within := seconds(firsts[i])
		useful.X, inFlight.X = x, x
		useful.Lines = append(useful.Lines, report.Line{Name: all[i].name, Y: served, Role: role})
		inFlight.Lines = append(inFlight.Lines, report.Line{Name: all[i].name, Y: within, Role: role})
	}
	page := &report.Page{
		Title: fmt.Sprintf("%s at %.4g times the capacity", results[0].Scenario, s.load),
		Lead:  "The policies that serve production, in virtual time: answers that came in time, as a share of what the service can carry.",
		Sections: []report.Section{
			{Bars: []report.BarGroup{bars}, Table: table, Charts: []report.Chart{useful, inFlight}},
		},
		Notes: []string{note(s)},
	}
	return page.Save(s.report)
}

func names(all []contender) []string {
	out := make([]string, len(all))
	for i := range all {
		out[i] = all[i].name
	}
	return out
}

// note describes the run.
func note(s settings) string {
	if s.runs == 1 {
		return fmt.Sprintf("Seed %d. The same seed gives the same figures to the bit.", s.seed)
	}
	return fmt.Sprintf("The figures are means of %d runs, with seeds from %d on; the charts show the first run. "+
		"The same seeds give the same figures to the bit.", s.runs, s.seed)
}

// seconds returns the time in seconds, the share of the capacity that was served, and the requests in flight, as means
// over a second: the tenths of a second of the Series are too noisy for a chart.
func seconds(r *sim.Result) (x, served, inFlight []float64) {
	const perSecond = 10
	for part := range slices.Chunk(r.Series, perSecond) {
		if len(part) < perSecond {
			break
		}
		var sum sim.Point
		for _, p := range part {
			sum.Served += p.Served
			sum.InFlight += p.InFlight
		}
		x = append(x, part[0].At.Seconds())
		served = append(served, 100*sum.Served/perSecond/r.Capacity)
		inFlight = append(inFlight, max(sum.InFlight/perSecond, 1))
	}
	return x, served, inFlight
}
