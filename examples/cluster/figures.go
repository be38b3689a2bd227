package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/spillway-go/spillway/internal/report"
)

// figures are the result, as told by -json.
type figures struct {
	Phases []phaseFigures `json:"phases"`
}

type phaseFigures struct {
	Phase   string  `json:"phase"`
	OfLimit float64 `json:"of_limit"`    // let through, as a part of the limit, after settling
	Worst   float64 `json:"worst_100ms"` // the most that was let through in 100 ms of the clock, as a part of the limit; from the first moment
	Jain    float64 `json:"jain"`        // how close the shares are to the max-min fair ones, after settling: at most 1
	Errors  int     `json:"errors"`      // answers other than 200 and 429, and none at all

	shares, fair []float64 // per second
}

func (d *drama) figures() figures {
	var f figures
	for i := range d.phases {
		f.Phases = append(f.Phases, d.figuresOf(&d.phases[i]))
	}
	return f
}

// windows returns the first window that begins after from, and the first that does not end before to.
func windows(from, to time.Time) (first, end int64) {
	w := int64(window)
	return (from.UnixNano() + w - 1) / w, to.UnixNano() / w
}

func (d *drama) figuresOf(p *phase) phaseFigures {
	f := phaseFigures{Phase: p.name, Errors: p.errors, shares: make([]float64, len(d.nodes))}
	first, end := windows(p.from, p.to)
	settled, _ := windows(p.from.Add(d.settle()), p.to)
	worst := 0
	for w := first; w < end; w++ {
		sum := 0
		for i, n := range d.nodes {
			admitted := n.in(w)
			sum += admitted
			if w >= settled {
				f.shares[i] += float64(admitted)
			}
		}
		worst = max(worst, sum)
	}
	total := 0.0
	for i := range f.shares {
		f.shares[i] /= float64(end-settled) * window.Seconds()
		total += f.shares[i]
	}
	f.fair = maxMin(p.offered, float64(d.rate))
	f.OfLimit = round(total/float64(d.rate), 4)
	f.Worst = round(float64(worst)/(float64(d.rate)*window.Seconds()), 3)
	f.Jain = round(jain(f.shares, f.fair), 4)
	return f
}

// maxMin divides a limit among demands: none gets more than it wants, and of those that want more than they get none gets
// more than another.
func maxMin(demands []float64, limit float64) []float64 {
	order := make([]int, len(demands))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if demands[a] < demands[b] {
			return -1
		}
		return 1
	})
	fair := make([]float64, len(demands))
	for i, k := range order {
		fair[k] = min(demands[k], limit/float64(len(order)-i))
		limit -= fair[k]
	}
	return fair
}

// jain is Jain's index of got/should, over those who should get something: 1 if all got the same part of their fair share.
func jain(got, should []float64) float64 {
	sum, squares, n := 0.0, 0.0, 0.0
	for i, s := range should {
		if s > 0 {
			part := got[i] / s
			sum, squares, n = sum+part, squares+part*part, n+1
		}
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (n * squares)
}

func round(x float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(x*scale) / scale
}

func (f figures) print(out io.Writer) {
	fmt.Fprintf(out, "%-22s %9s %12s %7s %7s   %s\n", "phase", "of limit", "worst 100ms", "Jain", "errors", "let through per second (fair share)")
	for _, p := range f.Phases {
		fmt.Fprintf(out, "%-22s %8.1f%% %11.0f%% %7.4f %7d  ", p.Phase, 100*p.OfLimit, 100*p.Worst, p.Jain, p.Errors)
		for i := range p.shares {
			fmt.Fprintf(out, " %5.0f (%.0f)", p.shares[i], p.fair[i])
		}
		fmt.Fprintln(out)
	}
}

// page draws the run.
func (d *drama) page(f figures) *report.Page {
	table := &report.Table{Head: []string{"phase", "of the limit", "worst 100 ms", "Jain", "errors"}}
	for _, p := range f.Phases {
		table.Rows = append(table.Rows, []string{
			p.Phase, fmt.Sprintf("%.1f %%", 100*p.OfLimit), fmt.Sprintf("%.0f %%", 100*p.Worst),
			fmt.Sprintf("%.4f", p.Jain), fmt.Sprint(p.Errors),
		})
	}
	shares := report.Chart{Title: "Let through by each server", Unit: "requests/s", Height: 260}
	total := report.Chart{Title: "Let through by all", Unit: "requests/s", Marks: []report.Mark{{Y: float64(d.rate), Name: "limit"}}, Max: 1.6 * float64(d.rate)}
	all := report.Line{Name: "all servers", Role: report.First, Fill: true}
	for i, n := range d.nodes {
		shares.Lines = append(shares.Lines, report.Line{Name: n.name, Role: report.RoleAt(i)})
	}
	first, _ := windows(d.phases[0].from, d.phases[0].to)
	_, end := windows(d.phases[0].from, d.phases[len(d.phases)-1].to)
	for w := first; w < end; w++ {
		sum := 0.0
		for i, n := range d.nodes {
			y := float64(n.in(w)) / window.Seconds()
			shares.Lines[i].Y = append(shares.Lines[i].Y, y)
			sum += y
		}
		all.Y = append(all.Y, sum)
		total.X = append(total.X, float64(w-first)*window.Seconds())
	}
	total.Lines = []report.Line{all}
	for _, p := range d.phases {
		total.Bands = append(total.Bands, report.Band{
			From: p.from.Sub(d.phases[0].from).Seconds(), To: p.to.Sub(d.phases[0].from).Seconds(), Name: p.name,
		})
	}
	shares.X, shares.Bands = total.X, total.Bands
	return &report.Page{
		Title:    "One limit, three servers",
		Lead:     fmt.Sprintf("Three server processes share %d requests per second by leases from Redis. They are offered 5, 3.5 and 1 parts of more than twice that. The busiest is killed, then Redis, and both come back.", d.rate),
		Sections: []report.Section{{Table: table, Charts: []report.Chart{total, shares}}},
		Notes: []string{
			fmt.Sprintf("Averages and Jain's index leave out the first %v of each phase; the worst 100 ms and the errors do not.", d.settle()),
			"A burst of 50 ms worth of requests is allowed, so 100 ms may hold 150 % of the limit. Requests are counted by the servers, in tenths of a second of the clock.",
			"A Redis that comes back empty gives a server without a lease one more burst and 5 % of the rate, so once, 100 ms may hold 205 %.",
			"What was under way to the server when it was killed is not counted: its clients are gone with it.",
		},
	}
}
