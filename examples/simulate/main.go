// Command simulate plays a scenario of overload in virtual time, once for each policy, and shows how much useful work
// the service keeps.
//
//	go run ./examples/simulate
//	go run ./examples/simulate -scenario step -load 10 -policies spillway,fixed:8,gradient2 -json figures.json -report page.html
//	go run ./examples/simulate -scenario pool -load 2 -policies spillway,spillway:threshold=0.8,slo=250ms
//	go run ./examples/simulate -trace yesterday.csv -scale 2 -cores 4 -policies spillway,spillway:threshold=0.8
//	go run ./examples/simulate -list
//	go run ./examples/simulate -suite
//	go run ./examples/simulate -suite -rows '^pool' -policies spillway,spillway:slo=2p99 -json suite.json -report suite.html
//	go run ./examples/simulate -ablate
//	go run ./examples/simulate -sweep
//
// A trace is CSV with the columns arrival_s, class, cpu_ms and wait_ms. Its replay sends each request at its recorded
// time with its recorded needs; -scale repeats or drops some. The load of a trace is that of its busiest second. A
// refusal in a second whose load is within the capacity counts as wrongly refused.
//
// With -suite each row is a scenario at one load. Its figures stand beside those of the best fixed limit on requests in
// flight, which -sweep finds and keeps in a golden file. With -ablate the rows are played for each variant of the
// shedder. docs/simulating.md explains the figures.
//
// Figures are means of -runs runs, with seeds from -seed on. The charts of the page show the first of them. The same
// seeds give the same figures to the bit, so a changed figure comes from a changed option and not from chance.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spillway-go/spillway/internal/usage"
	"github.com/spillway-go/spillway/sim"
)

const about = `simulate shows how much useful work a service keeps in an overload, by policy.
It plays a scenario in virtual time, so a run takes a moment and gives the same
figures each time. Look at goodput: answers in time, as a share of the capacity.

simulate -list shows the scenarios. With -suite, -sweep and -ablate it plays
many of them; docs/simulating.md explains the figures.`

func main() {
	switch err := run(os.Args[1:], os.Stdout, os.Stdout); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	scenario, policies string
	load               float64
	seed               uint64
	runs               int
	json, report       string
	list               bool

	trace  string
	scale  float64
	cores  int
	useful time.Duration

	suite, sweep, ablate bool
	rows, golden         string
}

func parse(args []string, help io.Writer) (settings, error) {
	var s settings
	flags := usage.New("simulate", about, help)
	flags.StringVar(&s.scenario, "scenario", "step", "what is played; -list shows the names")
	flags.Float64Var(&s.load, "load", 10, "what scenarios that step go to, as a multiple of the capacity")
	flags.StringVar(&s.policies, "policies", "spillway,fixed:8,none", "comma-separated, of "+policyNames+
		"; with -suite and without this flag, spillway")
	flags.Uint64Var(&s.seed, "seed", 1, "the same one gives the same figures")
	flags.IntVar(&s.runs, "runs", 3, "how many runs the figures are the means of, 1 to 100, with seeds from -seed on")
	flags.StringVar(&s.json, "json", "", "`FILE` to write the figures to")
	flags.StringVar(&s.report, "report", "", "`FILE` to write an HTML page with charts to")
	flags.BoolVar(&s.list, "list", false, "show the scenarios and end")
	flags.StringVar(&s.trace, "trace", "", "`FILE` with a recorded trace that is played instead of a scenario")
	flags.Float64Var(&s.scale, "scale", 1, "with -trace: how many times the recorded rate")
	flags.IntVar(&s.cores, "cores", 2, "with -trace: processors of the service")
	flags.DurationVar(&s.useful, "useful", 250*time.Millisecond, "with -trace: an answer after it is worth nothing; clients give up after four times as long")
	flags.BoolVar(&s.suite, "suite", false, "play every row of the suite, against the best fixed limit of each")
	flags.StringVar(&s.rows, "rows", "", "with -suite, -ablate and -sweep: `REGEXP` of the rows to play, which are named as in step@10; all if empty")
	flags.BoolVar(&s.sweep, "sweep", false, "find the best fixed limits of the rows again, and write them to the golden file")
	flags.BoolVar(&s.ablate, "ablate", false, "play the suite with each mechanism of the shedder switched off and each constant changed, as one table")
	flags.StringVar(&s.golden, "golden", "examples/simulate/testdata/best.json", "with -sweep: the golden `FILE`")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	given := false
	flags.Visit(func(f *flag.Flag) { given = given || f.Name == "policies" })
	if s.suite && !given {
		s.policies = "spillway"
	}
	if !(s.load > 0 && s.load <= 100) {
		return s, fmt.Errorf("load must be above 0 and at most 100, got %v", s.load)
	}
	if s.runs < 1 || s.runs > 100 {
		return s, fmt.Errorf("runs must be in 1..100, got %d", s.runs)
	}
	return s, nil
}

func run(args []string, out, help io.Writer) error {
	s, err := parse(args, help)
	if err != nil {
		return err
	}
	if s.list && s.suite {
		return listRows(s.rows, out)
	}
	if s.list {
		list(out, s.load)
		return nil
	}
	if s.suite || s.sweep || s.ablate {
		return runSuite(s, out)
	}
	var scenario sim.Scenario
	if s.trace != "" {
		scenario, s.load, err = replayed(s)
	} else {
		scenario, err = find(s.scenario, s.load)
	}
	if err != nil {
		return err
	}
	all, err := contenders(s.policies)
	if err != nil {
		return err
	}
	return play(s, scenario, all, out)
}

// play runs the scenario behind each policy, and prints and writes the results.
func play(s settings, scenario sim.Scenario, all []contender, out io.Writer) error {
	f := figures{Runs: s.runs, Results: []figure{}}
	var means, firsts []*sim.Result
	fmt.Fprintf(out, "%s at %.4g times the capacity, %v of virtual time for each policy%s\n\n",
		scenario.Name, s.load, length(scenario), times(s.runs))
	head(out, all)
	for _, c := range all {
		runs := make([]*sim.Result, s.runs)
		for i := range runs {
			var err error
			seed := s.seed + uint64(i)
			if runs[i], err = sim.Run(scenario, seed, c.gate(seed)); err != nil {
				return err
			}
		}
		r := mean(runs)
		means, firsts = append(means, r), append(firsts, runs[0])
		f.Results = append(f.Results, newFigure(c.name, s.load, r))
		row(out, all, c.name, r)
	}
	if err := writeJSON(s.json, f); err != nil {
		return err
	}
	if s.report != "" {
		return writePage(s, all, means, firsts)
	}
	return nil
}

// writeJSON writes figures to a file, if there is one.
func writeJSON(file string, figures any) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}

// times returns the note that there is more than one run.
func times(runs int) string {
	if runs == 1 {
		return ""
	}
	return fmt.Sprintf(", the mean of %d runs", runs)
}

func find(name string, load float64) (sim.Scenario, error) {
	var names []string
	for _, s := range sim.Library(load) {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return sim.Scenario{}, fmt.Errorf("unknown scenario %q; there are %s", name, strings.Join(names, ", "))
}

// length is how long a scenario lasts in virtual time.
func length(s sim.Scenario) time.Duration {
	var sum time.Duration
	for _, p := range s.Phases {
		sum += p.For
	}
	return sum
}
