// Overload drives a real HTTP server far beyond its capacity, behind Spillway and its peers side by side. It compares
// the goodput of each with that of the best limit that could have been set by hand.
//
//	go run ./bench/overload -guards none,spillway,aegis -works cpu,db -loads 2,5,10 -seconds 8 -json figures.json
//
// In each pass every guard and several fixed limits face every load. The best fixed limit for that work and load is the
// yardstick. The guards change places from pass to pass. The capacity is measured before and after a pass. If it has
// moved, the machine was not steady, and the pass is repeated.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/bench/peers"
	"github.com/spillway-go/spillway/lab/overload"
)

func main() { os.Exit(status()) }

func status() int {
	config := overload.Config{Guards: peers.Guards()}
	if overload.IsChild() {
		return overload.Main(config)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, &config, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// settings are the flags.
type settings struct {
	plan   overload.Plan // of one pass, without Work
	guards []string
	works  []string
	sweep  string
	passes int
	bound  float64
	json   string
	report string
}

// maxPasses keeps a typing error from taking the whole night.
const maxPasses = 100

func parse(args []string, out io.Writer) (*settings, error) {
	s := &settings{plan: overload.Plan{Recheck: true}}
	flags := flag.NewFlagSet("overload", flag.ContinueOnError)
	flags.SetOutput(out)
	guards := flags.String("guards", "none,spillway,go-zero,aegis,failsafe,gradient2,rate:1",
		"guards to compare: none, fixed:N, rate:F (a rate limit at F times the capacity), "+strings.Join(guardNames(), ", "))
	works := flags.String("works", "cpu,cpusolid,io,db", "what the server does for a request: "+strings.Join(workNames(), ", "))
	loads := flags.String("loads", "2,5,10", "loads to run in order, as multiples of the capacity")
	seconds := flags.Float64("seconds", 6, "how long each load lasts")
	settle := flags.Float64("settle", 1.5, "how long the light load before each step lasts, in seconds")
	shape := flags.String("shape", string(overload.Step), fmt.Sprint("how a load arrives: one of ", overload.Shapes()))
	flags.StringVar(&s.sweep, "sweep", "auto", "fixed limits to look for the best among, such as 1,2,4,8; auto takes those that fit the work, "+
		"unless -guards names some; none leaves it at that")
	flags.IntVar(&s.passes, "passes", 1, "how often everything is measured; a cell is that of the pass with the median goodput")
	flags.Float64Var(&s.bound, "bound", 0.1, "how much the capacity may move during a pass, as a fraction, before the pass is thrown away")
	flags.Float64Var(&s.plan.Quota, "quota", 0.4, "how many CPUs the server may use, through a control group; 0 sets no limit")
	flags.Uint64Var(&s.plan.Seed, "seed", 1, "seed of the arrival times")
	flags.StringVar(&s.json, "json", "", "write the figures to this `FILE`")
	flags.StringVar(&s.report, "report", "", "write a page with a picture for each work to this `FILE`")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("overload: unexpected argument %q", flags.Arg(0))
	}
	s.guards, s.works = strings.Split(*guards, ","), strings.Split(*works, ",")
	s.plan.Each, s.plan.Settle = time.Duration(*seconds*float64(time.Second)), time.Duration(*settle*float64(time.Second))
	s.plan.Shape = overload.Shape(*shape)
	var err error
	if s.plan.Loads, err = overload.ParseLoads(*loads); err != nil {
		return nil, err
	}
	return s, s.check()
}

func (s *settings) check() error {
	if s.passes < 1 || s.passes > maxPasses {
		return fmt.Errorf("overload: -passes: must be 1 to %d, got %d", maxPasses, s.passes)
	}
	if !(s.bound > 0) {
		return fmt.Errorf("overload: -bound: must be above 0, got %g", s.bound)
	}
	_, err := s.limits("cpu")
	return err
}

func guardNames() (names []string) {
	for _, g := range peers.Guards() {
		names = append(names, g.Name)
	}
	return names
}

func workNames() (names []string) {
	for _, w := range overload.Works() {
		names = append(names, w.Name)
	}
	return names
}

func run(ctx context.Context, config *overload.Config, args []string, out io.Writer) error {
	s, err := parse(args, out)
	if err != nil {
		return err
	}
	all := &figures{}
	var pages []*overload.Run
	for _, work := range s.works {
		passes, err := s.measure(work, func(p overload.Plan) (*overload.Run, error) { return config.Measure(ctx, p, out) }, out)
		if err != nil {
			return err
		}
		all.add(s, passes)
		pages = append(pages, passes[len(passes)-1])
	}
	if err := all.print(out); err != nil {
		return err
	}
	if s.json != "" {
		if err := all.write(s.json); err != nil {
			return err
		}
	}
	if s.report == "" {
		return nil
	}
	return writePage(s.report, all, pages)
}
