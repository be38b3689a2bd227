package main

import (
	"fmt"
	"strings"
	"time"
)

// The dimensions of the picture, in its units.
const (
	left   = 190
	second = 95
	height = 46 // of a row
	bars   = 30 // number of requests that a row can show in one column
	column = 50 * time.Millisecond
	full   = 5 // requests in a column of full height
)

// draw returns the picture of rows: for each, a column for every 50 ms.
func draw(rows []row) string {
	var b strings.Builder
	width, bottom := left+second*int(length/time.Second)+130, 40+height*len(rows)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="13">`+"\n",
		width, bottom+30)
	b.WriteString("<style>text{fill:#333}.d{font-size:11px}.g{stroke:#ccc}.n{fill:#b0413e}.s{fill:#2a7f9e}" +
		"@media(prefers-color-scheme:dark){text{fill:#ddd}.g{stroke:#444}}</style>\n")
	fmt.Fprintf(&b, `<text x="10" y="20" font-weight="600">What each limit of %d per second lets through</text>`+"\n", perSecond)
	for s := range int(length/time.Second) + 1 {
		x := left + second*s
		fmt.Fprintf(&b, `<line class="g" x1="%d" y1="40" x2="%d" y2="%d"/><text x="%d" y="%d" text-anchor="middle">%d s</text>`+"\n",
			x, x, bottom, x, bottom+20, s)
	}
	for i, r := range rows {
		drawRow(&b, r, i)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func drawRow(b *strings.Builder, r row, i int) {
	y, class := 40+height*(i+1), "s"
	if i == 0 {
		class = "n"
	}
	fmt.Fprintf(b, `<text x="10" y="%d">%s</text><text class="d" x="10" y="%d">%s</text>`+"\n", y-18, r.name, y-4, r.settings)
	fmt.Fprintf(b, `<line class="g" x1="%d" y1="%d" x2="%d" y2="%d"/>`, left, y, left+second*int(length/time.Second), y)
	counts := make([]int, length/column+1)
	for _, at := range r.passed {
		counts[min(int(at/column), len(counts)-1)]++
	}
	for c, n := range counts {
		if n > 0 {
			x := float64(left) + float64(second)*(time.Duration(c)*column).Seconds()
			h := bars * min(n, full+1) / full
			fmt.Fprintf(b, `<rect class="%s" x="%.2f" y="%d" width="%.2f" height="%d"/>`, class, x, y-h, second*column.Seconds()-0.5, h)
		}
	}
	fmt.Fprintf(b, "\n"+`<text class="d" x="%d" y="%d">%d in all</text><text class="d" x="%d" y="%d">%d in 1 s at most</text>`+"\n",
		left+second*int(length/time.Second)+10, y-18, len(r.passed), left+second*int(length/time.Second)+10, y-4,
		mostWithin(time.Second, r.passed))
}
