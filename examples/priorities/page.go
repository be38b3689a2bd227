package main

import (
	"fmt"
	"strings"

	"github.com/spillway-go/spillway/internal/report"
)

// page shows the figures.
func page(f *figures) *report.Page {
	table := &report.Table{Head: []string{"priority", "offered/s", "off: served", "p99", "on: served", "p99", "clients listen: served", "p99"}}
	groups := make([]report.BarGroup, 0, len(f.Classes)+1)
	for i, c := range f.Classes {
		ways := []classFigures{f.ClassesOff[i], c, f.Helped.Classes[i]}
		row, group := []string{c.Priority, fmt.Sprintf("%.0f", c.OfferedRPS)}, report.BarGroup{Title: "Served: " + c.Priority}
		for w, name := range []string{"priorities off", "priorities on", "and clients listen"} {
			row = append(row, fmt.Sprintf("%.2f %%", 100*ways[w].Served), fmt.Sprintf("%.0f ms", ways[w].P99MS))
			group.Bars = append(group.Bars, report.Bar{
				Name: name, Text: fmt.Sprintf("%.2f %%", 100*ways[w].Served), Value: ways[w].Served, Role: report.RoleAt(w),
			})
		}
		table.Rows, groups = append(table.Rows, row), append(groups, group)
	}
	reach := report.BarGroup{Title: "Requests that reach the server, as a share of those that clients want to send"}
	for w, rps := range []float64{f.PlainRPS, f.HelpedRPS} {
		reach.Bars = append(reach.Bars, report.Bar{
			Name: []string{"priorities on", "and clients listen"}[w], Text: fmt.Sprintf("%.0f/s", rps),
			Value: min(rps/(f.Load*f.CapacityRPS), 1), Role: report.RoleAt(w + 1),
		})
	}
	return &report.Page{
		Title: "Who is served when there is not room for all",
		Lead: fmt.Sprintf("Clients want %g times what the server can answer (%.0f per second). Useful answers, of the capacity: "+
			"%.3f without priorities, %.3f with them, %.3f with clients that listen.", f.Load, f.CapacityRPS, f.GoodputOff, f.Goodput, f.Helped.Goodput),
		Sections: []report.Section{{Bars: append(groups, reach), Table: table}},
		Notes: []string{fmt.Sprintf("A real server in a process of its own, with a pool of %d connections that each request needs for %v. "+
			"Each way was measured for %g s, after a light load and up to 2 s of the overload.", pool, takes, f.Seconds)},
	}
}

// The picture, in its units.
const (
	left   = 190
	length = 330 // of a bar for everything
	row    = 22
)

// draw returns the picture: a bar for each class and way, and one for each kind of clients.
func draw(f *figures) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 %d" font-family="system-ui, sans-serif" font-size="13">`+"\n", 60+row*16)
	b.WriteString("<style>text{fill:#333}.a{fill:#b0413e}.b{fill:#2a7f9e}.c{fill:#4f9a5b}.g{fill:#8884}" +
		"@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>\n")
	y := 24
	line := func(format string, args ...any) {
		fmt.Fprintf(&b, `<text x="10" y="%d" font-weight="600">`+format+"</text>\n", append([]any{y}, args...)...)
		y += row
	}
	bar := func(name, class, text string, value float64) {
		fmt.Fprintf(&b, `<text x="20" y="%d">%s</text><rect class="g" x="%d" y="%d" width="%d" height="14"/>`, y, name, left, y-12, length)
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="14"/><text x="%d" y="%d">%s</text>`+"\n",
			class, left, y-12, length*value, left+length+10, y, text)
		y += row
	}
	line("Served at %g times the capacity", f.Load)
	for i, c := range f.Classes {
		y += 4
		line("%s, %.0f per second", c.Priority, c.OfferedRPS)
		for w, served := range []float64{f.ClassesOff[i].Served, c.Served, f.Helped.Classes[i].Served} {
			bar([]string{"priorities off", "priorities on", "and clients listen"}[w], string(rune('a'+w)), fmt.Sprintf("%.1f %%", 100*served), served)
		}
	}
	y += 4
	line("Reaches the server, which can answer %.0f per second", f.CapacityRPS)
	for w, rps := range []float64{f.PlainRPS, f.HelpedRPS} {
		bar([]string{"priorities on", "and clients listen"}[w], string(rune('b'+w)), fmt.Sprintf("%.0f per second", rps), min(rps/(f.Load*f.CapacityRPS), 1))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
