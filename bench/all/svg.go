package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/internal/report"
)

// The picture: groups of horizontal bars, one group for each load, one bar for each guard.
const (
	svgWidth  = 720
	svgLeft   = 110 // where bars begin
	svgFull   = 500 // length of a bar of 1
	svgMost   = 1.15
	barHeight = 14
	barStep   = 18
	groupGap  = 30
)

// draw shows the goodput of each guard under each load. Of the fixed limits it shows the best.
func draw(rows []served) string {
	var b strings.Builder
	roles := report.Roles(guardsOf(rows))
	y := 36.0
	for _, load := range loads(rows) {
		fmt.Fprintf(&b, `<text x="%d" y="%.0f" font-weight="600">%g × the capacity</text>`+"\n", 10, y, load)
		y += 8
		for _, bar := range bars(rows, load) {
			width := math.Max(1, math.Min(bar.Goodput, svgMost)*svgFull)
			fmt.Fprintf(&b, `<text x="%d" y="%.0f" text-anchor="end">%s</text><rect class="r%d" x="%d" y="%.0f" width="%.1f" height="%d"/>`+
				`<text x="%d" y="%.0f" text-anchor="end">%.2f</text>`+"\n", svgLeft-8, y+11, html.EscapeString(bar.Guard), roles[kind(bar.Guard)], svgLeft, y,
				width, barHeight, svgWidth-4, y+11, bar.Goodput)
			y += barStep
		}
		y += groupGap
	}
	height := y - groupGap + 10
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" font-family="system-ui, sans-serif" font-size="12">`+"\n", svgWidth, height) +
		"<style>text{fill:#333}.g{stroke:#ccc}" + fills(report.Role.Light) +
		"@media(prefers-color-scheme:dark){text{fill:#ddd}.g{stroke:#444}" + fills(report.Role.Dark) + "}</style>\n" +
		`<text x="10" y="16">Useful answers, as a share of the capacity</text>` + "\n" +
		fmt.Sprintf(`<text x="%d" y="20" text-anchor="middle">1.0</text><line class="g" x1="%d" y1="24" x2="%d" y2="%.0f"/>`+"\n",
			svgLeft+svgFull, svgLeft+svgFull, svgLeft+svgFull, height-8)
	return head + b.String() + "</svg>\n"
}

// bars are the guards under one load, with the best fixed limit first.
func bars(rows []served, load float64) []served {
	best := served{Goodput: -1}
	var out []served
	for _, guard := range guards(rows) {
		r, ok := find(rows, guard, load)
		switch {
		case !ok:
		case !strings.HasPrefix(guard, "fixed:"):
			out = append(out, r)
		case r.Goodput > best.Goodput:
			best = r
		}
	}
	if best.Goodput < 0 {
		return out
	}
	return slices.Insert(out, 0, best)
}

// guardsOf are the kinds of all guards of the picture.
func guardsOf(rows []served) []string {
	var names []string
	for _, load := range loads(rows) {
		for _, bar := range bars(rows, load) {
			names = append(names, kind(bar.Guard))
		}
	}
	return names
}

// kind is the name of a guard without its option: the fixed limits have one colour, whichever is best.
func kind(guard string) string {
	name, _, _ := strings.Cut(guard, ":")
	return name
}

// fills are the colours that the reports have, too.
func fills(color func(report.Role) string) string {
	var b strings.Builder
	for role := report.Bare; color(role) != ""; role++ {
		fmt.Fprintf(&b, ".r%d{fill:%s}", role, color(role))
	}
	return b.String()
}
