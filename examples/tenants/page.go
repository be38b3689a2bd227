package main

import (
	"fmt"

	"github.com/spillway-go/spillway/internal/report"
)

// page shows the figures. The flood has one colour, and the tenants that keep to their limit have another.
func (s settings) page(f figures) *report.Page {
	asked := report.BarGroup{Title: "Served, of what the tenant asked for"}
	limit := report.BarGroup{Title: "Served, of the tenant's limit"}
	table := &report.Table{Head: []string{"tenant", "offered/s", "served/s", "limit/s"}}
	for i, t := range f.Tenants {
		role := report.First
		if i == 0 {
			role = report.Second
		}
		for group, whole := range map[*report.BarGroup]float64{&asked: t.OfferedRPS, &limit: t.LimitRPS} {
			share := t.ServedRPS / max(whole, 1)
			group.Bars = append(group.Bars, report.Bar{Name: t.Name, Text: fmt.Sprintf("%.0f %%", 100*share), Value: share, Role: role})
		}
		table.Rows = append(table.Rows, []string{
			t.Name, fmt.Sprintf("%.1f", t.OfferedRPS), fmt.Sprintf("%.1f", t.ServedRPS), fmt.Sprintf("%.0f", t.LimitRPS),
		})
	}
	return &report.Page{
		Title: "One tenant floods, the others are served",
		Lead: fmt.Sprintf("Each tenant may send %d requests per second. One sends %g times that. The others send %g %% of it and get every answer.",
			s.limit, flooding, 100*calm),
		Sections: []report.Section{{Bars: []report.BarGroup{asked, limit}, Table: table}},
		Notes:    []string{fmt.Sprintf("A real server on the loopback, measured for %g s after the burst of a second that a bucket allows.", s.seconds)},
	}
}
