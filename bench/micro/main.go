// Micro measures the cost of asking a policy, for Spillway and its peers side by side.
//
//	go run ./bench/micro -json out.json
//
// Every cell is measured once in each pass. The passes follow one another, so that a slow spell of the machine affects
// all cells alike. The table gives medians over the passes. The ratio is to two clock reads of the same pass.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/zeromicro/go-zero/core/logx"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "micro:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("micro", flag.ContinueOnError)
	file := flags.String("json", "", "write the results to this file")
	passes := flags.Int("passes", 11, "how often each cell is measured")
	slice := flags.Duration("benchtime", 25*time.Millisecond, "how long each cell is measured in each pass")
	procs := flags.String("procs", "1,2", "numbers of goroutines that call at once, each with a processor of its own")
	only := flags.String("run", "", "measure only entries whose \"name/path\" matches this regular expression")
	if err := flags.Parse(args); err != nil {
		return err
	}
	logx.Disable() // go-zero logs every refusal, which would dominate the measurement
	p, err := newPlan(*passes, *slice, *procs, *only)
	if err != nil {
		return err
	}
	results, err := p.measure(entries())
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s %s/%s, %d passes of %v\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, p.passes, p.slice)
	if err := printTable(out, results); err != nil {
		return err
	}
	return writeJSON(*file, results)
}

func newPlan(passes int, slice time.Duration, procs, only string) (plan, error) {
	p := plan{passes: passes, slice: slice}
	if passes < 1 {
		return p, fmt.Errorf("-passes must be at least 1, got %d", passes)
	}
	if slice <= 0 {
		return p, fmt.Errorf("-benchtime must be positive, got %v", slice)
	}
	for s := range strings.SplitSeq(procs, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return p, fmt.Errorf("-procs must be numbers of at least 1, got %q", s)
		}
		p.procs = append(p.procs, n)
	}
	var err error
	if p.only, err = regexp.Compile(only); err != nil {
		return p, fmt.Errorf("-run: %w", err)
	}
	return p, nil
}

// printTable prints one line for each entry and path, with all numbers of procs beside one another.
func printTable(out io.Writer, results []result) error {
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	var head, rule strings.Builder
	head.WriteString("| kind\t| policy\t| path\t| taken")
	rule.WriteString("|---\t|---\t|---\t|---:")
	row := 0 // results of one row stand together
	for row < len(results) && results[row].key() == results[0].key() {
		fmt.Fprintf(&head, "\t| ns, %d P\t| ratio\t| ±", results[row].Procs)
		rule.WriteString("\t|---:\t|---:\t|---:")
		row++
	}
	fmt.Fprintf(w, "%s\t| allocs\t|\n%s\t|---:\t|\n", head.String(), rule.String())
	for i := 0; i+row <= len(results) && row > 0; i += row {
		r := results[i]
		fmt.Fprintf(w, "| %s\t| %s\t| %s\t| %s", r.Kind, r.Name, r.Path, percent(r.Taken))
		for _, r := range results[i : i+row] {
			fmt.Fprintf(w, "\t| %s\t| %.2f\t| %s", nanos(r.NS), r.Ratio, percent(r.Spread))
		}
		fmt.Fprintf(w, "\t| %d\t|\n", r.Allocs)
	}
	return w.Flush()
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 0, 64) + " %" }

// nanos keeps three digits, because further digits are noise.
func nanos(ns float64) string {
	if ns < 100 {
		return strconv.FormatFloat(ns, 'f', 1, 64)
	}
	return strconv.FormatFloat(ns, 'f', 0, 64)
}

func writeJSON(file string, results []result) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(map[string]any{"results": results}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}
