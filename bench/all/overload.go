package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/lab/overload"
)

// A served is one guard's figures under one load of one work, as bench/overload writes them.
type served struct {
	Work        string   `json:"work"`
	Guard       string   `json:"guard"`
	Load        float64  `json:"load"`
	Goodput     float64  `json:"goodput"`
	OfBestFixed *float64 `json:"of_best_fixed"`
	BestFixed   string   `json:"best_fixed"`
	P99         *float64 `json:"p99_ms"`
	RefusedP99  *float64 `json:"refused_p99_ms"`
	Shed        float64  `json:"shed"`
	GoodputAll  float64  `json:"goodput_all"` // of the whole load, like the next field
	P99All      *float64 `json:"p99_all_ms"`
}

// A measuredWork is one kind of request.
type measuredWork struct {
	Work     string  `json:"work"`
	About    string  `json:"work_about"`
	Capacity float64 `json:"capacity_rps"`
}

func renderOverload(s *settings) (string, error) {
	var (
		works []measuredWork
		all   []served
	)
	when, err := load(s, "overload*.json", func(text []byte) error {
		var f struct {
			Works   []measuredWork `json:"works"`
			Results []served       `json:"results"`
		}
		err := json.Unmarshal(text, &f)
		all = append(all, f.Results...)
		for _, w := range f.Works {
			if !slices.ContainsFunc(works, func(have measuredWork) bool { return have.Work == w.Work }) {
				works = append(works, w)
			}
		}
		return err
	})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(measured(when, overloadWords(s.quick)...))
	below := slices.DeleteFunc(slices.Clone(all), func(r served) bool { return r.Load > 1 })
	for _, w := range works {
		picture := "overload-" + w.Work + ".svg"
		rows := slices.DeleteFunc(slices.Clone(all), func(r served) bool { return r.Work != w.Work || r.Load <= 1 })
		if err := os.WriteFile(filepath.Join(s.out, picture), []byte(draw(rows)), 0o644); err != nil { //nolint:gosec // documentation
			return "", err
		}
		fmt.Fprintf(&b, "### %s\n\n%s. The bare server can serve %.0f requests a second.\n\n![Goodput of each guard: %s](%s)\n\n%s\n", w.Work, capital(w.About),
			w.Capacity, w.Work, picture, overloadTable(rows))
	}
	if len(below) > 0 {
		fmt.Fprintf(&b, "### Below the capacity\n\nRefused at %g times the capacity, in percent of the requests:\n\n%s\n", below[0].Load, belowTable(works, below))
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// overloadWords are the arguments that the commands of all works share.
func overloadWords(quick bool) (out []string) {
	for _, c := range overloadCommands(quick) {
		words, _, _ := strings.Cut(strings.Join(c.show(), " "), " -json")
		if strings.Contains(words, "-works cpu ") {
			out = append(out, strings.Replace(words, "-works cpu ", "-works WORK ", 1))
		}
	}
	return out
}

// belowTable has a line for each guard and a column for each work.
func belowTable(works []measuredWork, rows []served) string {
	head := []string{"guard"}
	for _, w := range works {
		head = append(head, w.Work)
	}
	var lines [][]string
	for _, guard := range guards(rows) {
		line := []string{guard}
		for _, w := range works {
			i := slices.IndexFunc(rows, func(r served) bool { return r.Guard == guard && r.Work == w.Work })
			if i < 0 {
				line = append(line, "")
				continue
			}
			line = append(line, hundredth(&rows[i].Shed, 1))
		}
		lines = append(lines, line)
	}
	return table(head, lines)
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// loads returns the loads in ascending order.
func loads(rows []served) (out []float64) {
	for _, r := range rows {
		if !slices.Contains(out, r.Load) {
			out = append(out, r.Load)
		}
	}
	slices.Sort(out)
	return out
}

// guards returns the bare server, Spillway, the others in the order in which they occur, and the fixed limits.
func guards(rows []served) (out []string) {
	for _, r := range rows {
		if !slices.Contains(out, r.Guard) {
			out = append(out, r.Guard)
		}
	}
	slices.SortStableFunc(out, func(a, b string) int { return rank(a) - rank(b) })
	return out
}

func rank(guard string) int {
	if n, ok := overload.FixedLimit(guard); ok {
		return 2 + n
	}
	switch guard {
	case "none":
		return 0
	case "spillway":
		return 1
	}
	return 2
}

// find returns a guard's row at a load.
func find(rows []served, guard string, load float64) (served, bool) {
	i := slices.IndexFunc(rows, func(r served) bool { return r.Guard == guard && r.Load == load })
	if i < 0 {
		return served{}, false
	}
	return rows[i], true
}

// overloadTable has a line for each guard, with its goodput at each load.
func overloadTable(rows []served) string {
	head := []string{"guard"}
	for _, load := range loads(rows) {
		head = append(head, fmt.Sprintf("%g×: goodput", load), "of best fixed", "p99 ms", "refusal p99 ms")
	}
	var lines [][]string
	for _, guard := range guards(rows) {
		line := []string{guard}
		for _, load := range loads(rows) {
			if r, ok := find(rows, guard, load); ok {
				line = append(line, fmt.Sprintf("%.2f", r.Goodput), number(r.OfBestFixed, 2), number(r.P99, 0), number(r.RefusedP99, 0))
			} else {
				line = append(line, "", "", "", "")
			}
		}
		lines = append(lines, line)
	}
	return table(head, lines)
}
