package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spillway-go/spillway/sim"
)

// figures are the results, as -json writes them.
type figures struct {
	Runs    int      `json:"runs"` // of each policy, whose means the results are
	Results []figure `json:"results"`
}

// A figure is one policy's result. A value that is missing in any of the runs is null.
type figure struct {
	Policy         string   `json:"policy"`
	Scenario       string   `json:"scenario"`
	Load           float64  `json:"load"`            // offered load, as a multiple of the capacity
	Goodput        *float64 `json:"goodput"`         // answers in time, as a share of the capacity
	First5s        *float64 `json:"first5s"`         // the same over the first five seconds
	P99Ms          *float64 `json:"p99_ms"`          // latency of the served
	WronglyRefused *float64 `json:"wrongly_refused"` // share refused while there was room for all
	ConvergedS     *float64 `json:"converged_s"`     // until nine tenths of the attainable goodput is kept
	RecoveredS     *float64 `json:"recovered_s"`     // from the end of the overload until nothing is refused
}

func newFigure(policy string, load float64, r *sim.Result) figure {
	return figure{
		Policy:         policy,
		Scenario:       r.Scenario,
		Load:           load,
		Goodput:        known(r.Goodput),
		First5s:        known(r.First5s),
		P99Ms:          known(in(time.Millisecond, r.P99)),
		WronglyRefused: known(r.WronglyRefused),
		ConvergedS:     known(in(time.Second, r.Converged)),
		RecoveredS:     known(in(time.Second, r.Recovered)),
	}
}

// known returns v for JSON, with nil for NaN and infinities.
func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// mean returns a result with the mean figures of runs. A figure without a value in one of the runs has no mean.
func mean(runs []*sim.Result) *sim.Result {
	m := *runs[0]
	for _, f := range []func(*sim.Result) *float64{
		func(r *sim.Result) *float64 { return &r.Goodput }, func(r *sim.Result) *float64 { return &r.First5s },
		func(r *sim.Result) *float64 { return &r.WronglyRefused },
		func(r *sim.Result) *float64 { return &r.RefusedInAll }, func(r *sim.Result) *float64 { return &r.InTime },
	} {
		sum := *f(runs[0])
		for _, r := range runs[1:] {
			sum += *f(r)
		}
		*f(&m) = sum / float64(len(runs))
	}
	for _, f := range []func(*sim.Result) *time.Duration{
		func(r *sim.Result) *time.Duration { return &r.P99 },
		func(r *sim.Result) *time.Duration { return &r.Converged }, func(r *sim.Result) *time.Duration { return &r.Recovered },
	} {
		sum := 0.0
		for _, r := range runs {
			sum += in(1, *f(r))
		}
		if *f(&m) = math.MaxInt64; !math.IsNaN(sum) {
			*f(&m) = time.Duration(sum / float64(len(runs)))
		}
	}
	return &m
}

// in returns a duration in units, or NaN if it has no value.
func in(unit, d time.Duration) float64 {
	if d == math.MaxInt64 {
		return math.NaN()
	}
	return float64(d) / float64(unit)
}

var columns = []string{"goodput", "first 5 s", "p99", "wrongly refused", "converged", "recovered"}

// cells are a result's figures, one for each of columns.
func cells(r *sim.Result) []string {
	return []string{
		cell("%.1f %%", 100*r.Goodput), cell("%.1f %%", 100*r.First5s), cell("%.0f ms", in(time.Millisecond, r.P99)),
		cell("%.2f %%", 100*r.WronglyRefused), cell("%.1f s", in(time.Second, r.Converged)), cell("%.1f s", in(time.Second, r.Recovered)),
	}
}

func cell(format string, v float64) string {
	if known(v) == nil {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

func head(out io.Writer, all []contender) { line(out, all, "policy", columns) }

func row(out io.Writer, all []contender, name string, r *sim.Result) { line(out, all, name, cells(r)) }

func line(out io.Writer, all []contender, name string, cells []string) {
	width := len("policy")
	for _, c := range all {
		width = max(width, utf8.RuneCountInString(c.name))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%-*s", width, name)
	for i, c := range cells {
		fmt.Fprintf(&text, "  %*s", max(len(columns[i]), 8), c)
	}
	fmt.Fprintln(out, text.String())
}
