package overload

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// legend explains the columns.
const legend = `
goodput  useful answers as a fraction of the capacity, over the last half of the load; in all: over all of it
p50 p99  latency of the admitted requests;  refused  share of the requests;  ref. p99  latency of the refusals, in ms
first    seconds until the first refusal;  back  seconds at 0.5x until all was as before the overload
`

// writeTable prints the results for a person.
func writeTable(out io.Writer, run *Run) {
	fmt.Fprintf(out, "\ncapacity %.0f/s", run.Capacity)
	if run.CapacityAfter > 0 {
		fmt.Fprintf(out, " before, %.0f/s after", run.CapacityAfter)
	}
	fmt.Fprintf(out, "; an answer after %.0f ms is worthless, the client gives up after %.0f ms\n\n", run.SLOMillis, run.DeadlineMs)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "guard\tload\tsent/s\tgoodput\tin all\tp50 ms\tp99 ms\trefused\tref. in all\tref. p99\ttimeout\tfirst s\tback s\t")
	for _, r := range run.Results {
		fmt.Fprintf(t, "%s\t%gx\t%.0f\t%.2f\t%.2f\t%s\t%s\t%.1f%%\t%.1f%%\t%s\t%.1f%%\t%s\t%s\t\n",
			r.Guard, r.Load, r.Offered, r.Goodput, r.GoodputAll, number(r.P50, 0), number(r.P99, 0),
			100*r.Shed, 100*r.ShedAll, number(r.RefusedP99, 0), 100*r.Timeouts, number(r.FirstRefusal, 2), number(r.Recovered, 1))
	}
	_ = t.Flush() // a closed terminal is not a failure of the run
	fmt.Fprint(out, legend)
}

func number(v *float64, digits int) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, *v)
}
