package main

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/spillway-go/spillway/internal/report"
)

// figures are the result, as -json writes it.
type figures struct {
	Phases []phaseFigures `json:"phases"`
}

type phaseFigures struct {
	Phase   string  `json:"phase"`
	OfLimit float64 `json:"of_limit"`    // let through, as a part of the limit, after settling
	Worst   float64 `json:"worst_100ms"` // the most that was let through in 100 ms of the clock, as a part of the limit; from the first moment
	Jain    float64 `json:"jain"`        // how close the shares are to the max-min fair ones, after settling: at most 1
	Errors  int     `json:"errors"`      // answers other than 200 and 429, and missing answers

	shares, fair []float64 // per second
}

func (d *drama) figures() figures {
	var f figures
	for i := range d.phases {
		f.Phases = append(f.Phases, d.figuresOf(&d.phases[i]))
	}
	return f
}

func (d *drama) figuresOf(p *phase) phaseFigures {
	f := phaseFigures{Phase: p.name, shares: make([]float64, len(d.nodes))}
	first, end := windowOf(p.from), windowOf(p.to) // the event at the start of a phase counts in the window in which the phase begins
	settled := windowOf(p.from.Add(d.settle())) + 1
	seconds := float64(end-settled) * window.Seconds()
	offered := make([]float64, len(d.nodes))
	worst := 0
	for w := first; w < end; w++ {
		sum := 0
		for i, n := range d.nodes {
			m := n.in(w)
			sum += m.admitted
			f.Errors += m.errors
			if w >= settled {
				f.shares[i] += float64(m.admitted) / seconds
				offered[i] += float64(m.sent) / seconds
			}
		}
		worst = max(worst, sum)
	}
	total := 0.0
	for _, s := range f.shares {
		total += s
	}
	f.fair = maxMin(offered, float64(d.rate))
	f.OfLimit = round(total/float64(d.rate), 4)
	f.Worst = round(float64(worst)/(float64(d.rate)*window.Seconds()), 3)
	f.Jain = round(jain(f.shares, f.fair), 4)
	return f
}

// maxMin divides a limit among demands. No demand gets more than it wants, and all demands that are not met get the
// same.
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

// jain is Jain's index of got/should, over the servers with a share: 1 if all got the same fraction of their fair share.
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
	fmt.Fprintf(out, "\n%-14s %8s %6s %6s %6s   %s\n", "phase", "of limit", "worst", "Jain", "errors", "each server/s (its fair share)")
	for _, p := range f.Phases {
		fmt.Fprintf(out, "%-14s %7.1f%% %5.0f%% %6.3f %6d", p.Phase, 100*p.OfLimit, 100*p.Worst, p.Jain, p.Errors)
		for i := range p.shares {
			fmt.Fprintf(out, " %11s", fmt.Sprintf("%.0f (%.0f)", p.shares[i], p.fair[i]))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out, "\nworst: the most within 100 ms, as a share of the limit. Jain: 1 is fair.")
}

// charts draw the run.
func (d *drama) charts() []report.Chart {
	shares := report.Chart{Title: "Let through by each server", Unit: "requests/s", Height: 260}
	total := report.Chart{Title: "Let through by all", Unit: "requests/s", Height: 260, Marks: []report.Mark{{Y: float64(d.rate), Name: "limit"}}}
	all := report.Line{Name: "let through", Role: report.First, Fill: true}
	offered := report.Line{Name: "offered", Role: report.Bare}
	failed := report.Line{Name: "errors", Role: report.Second}
	for i, n := range d.nodes { // colours that the lines of all servers together do not have
		shares.Lines = append(shares.Lines, report.Line{Name: n.name, Role: report.RoleAt(i + 2)})
	}
	begin := d.phases[0].from
	first, end := windowOf(begin)+1, windowOf(d.phases[len(d.phases)-1].to)
	for w := first; w < end; w++ {
		var sum moment
		for i, n := range d.nodes {
			m := n.in(w)
			sum = moment{sum.sent + m.sent, sum.errors + m.errors, sum.admitted + m.admitted}
			y := math.NaN() // no server, no line
			if m.sent+m.admitted > 0 {
				y = float64(m.admitted) / window.Seconds()
			}
			shares.Lines[i].Y = append(shares.Lines[i].Y, y)
		}
		all.Y = append(all.Y, float64(sum.admitted)/window.Seconds())
		offered.Y = append(offered.Y, float64(sum.sent)/window.Seconds())
		failed.Y = append(failed.Y, float64(sum.errors)/window.Seconds())
		total.X = append(total.X, float64(w-first)*window.Seconds())
	}
	total.Lines = []report.Line{offered, all, failed}
	for i, p := range d.phases {
		to := p.to
		if i+1 < len(d.phases) {
			to = d.phases[i+1].from
		}
		total.Bands = append(total.Bands, report.Band{From: p.from.Sub(begin).Seconds(), To: to.Sub(begin).Seconds(), Name: p.name})
	}
	shares.X, shares.Bands = total.X, total.Bands
	return []report.Chart{total, shares}
}

// page shows the run.
func (d *drama) page(f figures) *report.Page {
	table := &report.Table{Head: []string{"phase", "of the limit", "worst 100 ms", "Jain", "errors"}}
	for _, p := range f.Phases {
		table.Rows = append(table.Rows, []string{
			p.Phase, fmt.Sprintf("%.1f %%", 100*p.OfLimit), fmt.Sprintf("%.0f %%", 100*p.Worst),
			fmt.Sprintf("%.4f", p.Jain), fmt.Sprint(p.Errors),
		})
	}
	charts := d.charts()
	return &report.Page{
		Title:    "One limit, three servers",
		Lead:     fmt.Sprintf("Three server processes share %d requests per second by leases from Redis. They are offered 5, 3.5 and 1 parts of more than twice that. The busiest is killed, then Redis, and both come back.", d.rate),
		Sections: []report.Section{{Table: table, Charts: charts}},
		Notes: []string{
			fmt.Sprintf("Averages and Jain's index leave out the first %v of each phase; the worst 100 ms and the errors do not.", d.settle().Round(window)),
			"A burst of 50 ms worth of requests is allowed, so 100 ms may hold 150 % of the limit. Requests are counted by the servers, in tenths of a second of the clock.",
			"A Redis that comes back empty gives a server without a lease 5 % of the rate and of the burst, so once, 100 ms may hold 158 %.",
			"Servers look for a Redis that was away more and more seldom. Until the others have found it again, they keep to their last grants, and the server that was started anew has those 5 %.",
			"What was under way to the server when it was killed is not counted: its clients are gone with it.",
		},
	}
}
