package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
)

// A summary is the result of one policy over its rows.
type summary struct {
	rows                int
	below95, below90    int // rows whose goodput is below that share of the best fixed limit's
	below85             int
	ofBest              float64 // mean, each capped at 1
	worst               float64 // of ofBest
	worstRow            string
	p99OfBest           float64 // mean
	p99OfLowest         float64 // mean
	slow, slower        int     // rows with a p99 of more than 1.5 times, and twice, the best fixed limit's
	wrong               int     // rows that refuse more than 1 % wrongly
	first5sOfBest       float64 // mean, each capped at 1
	ofBestN, p99N, fivN int
}

func summarize(results []suiteFigure) summary {
	sum := summary{rows: len(results), worst: math.Inf(1)}
	for i := range results {
		f := &results[i]
		if f.OfBest != nil {
			v := *f.OfBest
			sum.ofBestN++
			sum.ofBest += min(1, v)
			sum.below95 += below(v, 0.95)
			sum.below90 += below(v, 0.90)
			sum.below85 += below(v, 0.85)
			if v < sum.worst {
				sum.worst, sum.worstRow = v, f.key()
			}
		}
		if f.P99OfBest != nil {
			sum.p99N++
			sum.p99OfBest += *f.P99OfBest
			sum.p99OfLowest += *cmp.Or(f.P99OfLowest, f.P99OfBest)
			sum.slow += below(1.5, *f.P99OfBest)
			sum.slower += below(2, *f.P99OfBest)
		}
		if f.WronglyRefused != nil {
			sum.wrong += below(0.01, *f.WronglyRefused)
		}
		if known(f.first5sOfBest) != nil {
			sum.fivN++
			sum.first5sOfBest += min(1, f.first5sOfBest)
		}
	}
	sum.ofBest /= float64(sum.ofBestN)
	sum.p99OfBest /= float64(sum.p99N)
	sum.p99OfLowest /= float64(sum.p99N)
	sum.first5sOfBest /= float64(sum.fivN)
	return sum
}

func below(v, bound float64) int {
	if v < bound {
		return 1
	}
	return 0
}

func (f *suiteFigure) key() string { return fmt.Sprintf("%s@%.4g", f.Scenario, f.Load) }

var suiteColumns = []string{"load", "goodput", "of best", "of none", "wrongly", "p99 ms", "p99/best", "p99/least", "first 5 s", "recovered"}

// suiteCells are the figures of a row, one for each of suiteColumns.
func suiteCells(f *suiteFigure) []string {
	return []string{
		fmt.Sprintf("%.4g", f.Load), optional("%.3f", f.Goodput, 1), optional("%.3f", f.OfBest, 1), optional("%.2f", f.OfNone, 1),
		optional("%.2f %%", f.WronglyRefused, 100), optional("%.0f", f.P99Ms, 1), optional("%.2f", f.P99OfBest, 1), optional("%.2f", f.P99OfLowest, 1),
		optional("%.3f", f.First5s, 1), optional("%.1f s", f.RecoveredS, 1),
	}
}

func optional(format string, v *float64, unit float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v*unit)
}

// printSuite prints the rows of one policy, their summary, and the rows in which it is worse than no policy.
func printSuite(out io.Writer, policy string, results []suiteFigure) {
	fmt.Fprintf(out, "%s\n\n%-26s", policy, "scenario")
	for _, c := range suiteColumns {
		fmt.Fprintf(out, " %9s", c)
	}
	fmt.Fprintln(out)
	for i := range results {
		fmt.Fprintf(out, "%-26s", results[i].Scenario)
		for _, c := range suiteCells(&results[i]) {
			fmt.Fprintf(out, " %9s", c)
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out)
	for _, line := range summarize(results).lines() {
		fmt.Fprintf(out, "%-52s %s\n", line[0], line[1])
	}
	for i, f := range worseThanNone(results) {
		if i == 0 {
			fmt.Fprintln(out, "\nbelow 0.95 of the bare server:")
		}
		fmt.Fprintf(out, "  %-30s %.2f  %s\n", f.key(), *f.OfNone, f.remedy)
	}
	fmt.Fprintln(out)
}

// lines are the summary's names and figures.
func (s summary) lines() [][2]string {
	return [][2]string{
		{"rows", fmt.Sprint(s.rows)},
		{"rows below 0.95 / 0.90 / 0.85 of the best fixed limit", fmt.Sprintf("%d / %d / %d", s.below95, s.below90, s.below85)},
		{"worst row", fmt.Sprintf("%.3f, %s", s.worst, s.worstRow)},
		{"mean share of the best, each at most 1", fmt.Sprintf("%.4f", s.ofBest)},
		{"mean p99 ratio to the best fixed limit", fmt.Sprintf("%.3f", s.p99OfBest)},
		{"mean p99, over the lowest of a limit with 0.97 of it", fmt.Sprintf("%.3f", s.p99OfLowest)},
		{"rows with a p99 ratio above 1.5 / 2", fmt.Sprintf("%d / %d", s.slow, s.slower)},
		{"rows that refuse more than 1 % wrongly", fmt.Sprint(s.wrong)},
		{"mean of the first 5 s against the best, each at most 1", fmt.Sprintf("%.4f", s.first5sOfBest)},
	}
}

// worseThanNone returns the rows in which no policy at all would keep more.
func worseThanNone(results []suiteFigure) []suiteFigure {
	var all []suiteFigure
	for _, f := range results {
		if f.OfNone != nil && *f.OfNone < 0.95 {
			all = append(all, f)
		}
	}
	return all
}
