package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
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
	y := 36.0
	for _, load := range loads(rows) {
		fmt.Fprintf(&b, `<text x="%d" y="%.0f" font-weight="600">%g × the capacity</text>`+"\n", 10, y, load)
		y += 8
		for _, bar := range bars(rows, load) {
			width := math.Max(1, math.Min(bar.Goodput, svgMost)*svgFull)
			fmt.Fprintf(&b, `<text x="%d" y="%.0f" text-anchor="end">%s</text><rect class="%s" x="%d" y="%.0f" width="%.1f" height="%d"/>`+
				`<text x="%.1f" y="%.0f">%.2f</text>`+"\n", svgLeft-8, y+11, html.EscapeString(bar.Guard), class(bar.Guard), svgLeft, y, width, barHeight,
				svgLeft+width+6, y+11, bar.Goodput)
			y += barStep
		}
		y += groupGap
	}
	height := y - groupGap + 10
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" font-family="system-ui, sans-serif" font-size="12">`+"\n", svgWidth, height) +
		"<style>text{fill:#333}.g{stroke:#ccc}.n{fill:#b0413e}.s{fill:#2a7f9e}.p{fill:#9a9a9a}.f{fill:#5c8a4a}" +
		"@media(prefers-color-scheme:dark){text{fill:#ddd}.g{stroke:#444}}</style>\n" +
		`<text x="10" y="16">Useful answers, as a share of the capacity</text>` + "\n" +
		fmt.Sprintf(`<line class="g" x1="%d" y1="24" x2="%d" y2="%.0f"/>`+"\n", svgLeft+svgFull, svgLeft+svgFull, height-8)
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

func class(guard string) string {
	switch {
	case guard == "none":
		return "n"
	case guard == "spillway":
		return "s"
	case strings.HasPrefix(guard, "fixed:"):
		return "f"
	}
	return "p"
}
