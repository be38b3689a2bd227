package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// print writes a table of all results.
func (f *figures) print(out io.Writer) error {
	fmt.Fprintln(out)
	for _, l := range f.Loads {
		fmt.Fprintf(out, "%s: %.0f requests per second (%.0f to %.0f); app %.2f CPU, database %.2f CPU\n",
			l.Mix, l.Capacity, l.Least, l.Greatest, l.AppCPU, l.DatabaseCPU)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "mix\tload\tfault\tguard\tgoodput\tof best\tat limit\tp50 ms\tp99 ms\tof least\tat limit\trefused %\ttimed out %\tfailed %\tdead s\tDB CPU\tSLO ms\twithin\t")
	for _, r := range f.Results {
		slo := ""
		if r.SLO > 0 {
			slo = fmt.Sprintf("%.0f", r.SLO)
		}
		fmt.Fprintf(w, "%s\t%g\t%s\t%s\t%.2f\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f\t%.1f\t%.1f\t%.2f\t%.2f\t%s\t%s\t\n",
			r.Mix, r.Load, r.Fault, r.Guard, r.Goodput, text(r.OfBest, 2), r.BestFixed, text(r.P50, 0), text(r.P99, 0), text(r.P99OfBest, 2), r.P99Fixed,
			100*r.Refused, 100*r.Timeouts, 100*r.Failed, r.DeadS, r.DatabaseCPU, slo, number(r.WithinSLO, 3))
	}
	return w.Flush()
}

// text prints x, or a dash if it is not known.
func text(x *float64, digits int) string {
	if x == nil {
		return "-"
	}
	return number(x, digits)
}
