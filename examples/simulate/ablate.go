package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/report"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/sim"
)

// An ablation is the result of a variant of the shedder, compared with the default.
type ablation struct {
	name       string
	sum        summary
	loss, gain change // of the row that lost or won most against the default
	moved      int    // rows whose share of the best changed by more than 0.05
}

// A change is how far a row's share of the best fixed limit's goodput moved.
type change struct {
	by  float64
	row string
}

// ablate plays the rows with each variant, and compares each variant with the first.
func ablate(s settings, picked []suiteRow, byRow map[string]*golden, out io.Writer) error {
	f := suiteFigures{Runs: s.runs, Results: []suiteFigure{}}
	var all []ablation
	var first []suiteFigure
	fmt.Fprintln(out, ablationLine(ablationHead))
	for _, v := range variants() {
		results, err := playRows(s, picked, byRow, v.name, shedderOf(v))
		if err != nil {
			return fmt.Errorf("variant %q: %w", v.name, err)
		}
		if first == nil {
			first = results
		}
		a := compareWith(first, results, v.name)
		all, f.Results = append(all, a), append(f.Results, results...)
		fmt.Fprintln(out, ablationLine(a.cells()))
	}
	if err := writeJSON(s.json, f); err != nil || s.report == "" {
		return err
	}
	table := &report.Table{Head: ablationHead}
	for i := range all {
		table.Rows = append(table.Rows, all[i].cells())
	}
	page := &report.Page{
		Title:    "What each mechanism and each constant is worth",
		Lead:     "The suite with one mechanism switched off, or one constant changed, at a time.",
		Sections: []report.Section{{Table: table}},
		Notes:    []string{note(s)},
	}
	return page.Save(s.report)
}

// compareWith compares the results of a variant with those of the default for the same rows.
func compareWith(first, results []suiteFigure, name string) ablation {
	a := ablation{name: name, sum: summarize(results), loss: change{row: "-"}, gain: change{row: "-"}}
	for i := range results {
		if results[i].OfBest == nil || first[i].OfBest == nil {
			continue
		}
		by := *results[i].OfBest - *first[i].OfBest
		if math.Abs(by) > 0.05 {
			a.moved++
		}
		if by < a.loss.by {
			a.loss = change{by, results[i].key()}
		}
		if by > a.gain.by {
			a.gain = change{by, results[i].key()}
		}
	}
	return a
}

var ablationHead = []string{
	"variant", "below .95", "worst", "in", "greatest loss", "in", "greatest gain", "in", "moved > .05", "p99 ratio", "refuse wrongly",
}

// cells are the figures of an ablation, one for each of ablationHead.
func (a *ablation) cells() []string {
	return []string{
		a.name, fmt.Sprint(a.sum.below95), fmt.Sprintf("%.3f", a.sum.worst), a.sum.worstRow, fmt.Sprintf("%+.3f", a.loss.by), a.loss.row,
		fmt.Sprintf("%+.3f", a.gain.by), a.gain.row, fmt.Sprint(a.moved), fmt.Sprintf("%.3f", a.sum.p99OfBest), fmt.Sprint(a.sum.wrong),
	}
}

// ablationLine is a line of text with cells of ablationHead's widths, where names of rows take more.
func ablationLine(cells []string) string {
	var line strings.Builder
	for i, c := range cells {
		width := -len(ablationHead[i])
		if head := ablationHead[i]; head == "in" || head == "variant" {
			width = -26
		}
		fmt.Fprintf(&line, "%*s ", width, c)
	}
	return strings.TrimRight(line.String(), " ")
}

// shedderOf returns a function that makes gates with a variant of the shedder.
func shedderOf(v variant) rowGate {
	return func(time.Duration) (func(uint64) gates, error) {
		return always(func(h *sim.Host) (*spillway.Gate, error) {
			shed, err := v.new(hosted(shedder.Options{}, h))
			return spillway.New(shed), err
		}), nil
	}
}
