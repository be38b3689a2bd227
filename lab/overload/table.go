package overload

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spillway-go/spillway/internal/usage"
)

// legend explains the columns.
const legend = `
goodput  useful answers as a share of the capacity, in the last half of a load
p50 p99  latency of the admitted requests; in p99: latency of the refusals
timeout  share of the requests whose clients gave up
back     time at 0.5x until all was as before the overload
The report has more figures.

`

// writeTable prints the results for a person.
func writeTable(out io.Writer, run *Run) {
	after := ""
	if run.CapacityAfter > 0 {
		after = fmt.Sprintf(" before, %.0f/s after", run.CapacityAfter)
	}
	fmt.Fprintf(out, "\n%s\n\n", usage.Wrap(fmt.Sprintf("capacity %.0f/s%s; answers after %.0f ms are worthless, clients leave after %.0f ms",
		run.Capacity, after, run.SLOMillis, run.DeadlineMs), ""))
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "guard\tload\tgoodput\tp50 ms\tp99 ms\trefused\tin p99 ms\ttimeout\tback s\t")
	for _, r := range run.Results {
		fmt.Fprintf(t, "%s\t%gx\t%.1f%%\t%s\t%s\t%.1f%%\t%s\t%.1f%%\t%s\t\n",
			r.Guard, r.Load, 100*r.Goodput, number(r.P50, 0), number(r.P99, 0),
			100*r.Shed, number(r.RefusedP99, 0), 100*r.Timeouts, number(r.Recovered, 1))
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
