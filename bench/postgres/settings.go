package main

import (
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/lab/overload"
)

// settings are the flags.
type settings struct {
	guards     []string
	mixes      []mix
	loads      []float64
	faults     []string // "", coldStart, or the name of a fault
	faultLoads []float64
	coldLoad   float64
	sweep      []int
	passes     int
	each       time.Duration
	settle     time.Duration
	slo        time.Duration
	quota      float64
	dbQuota    float64
	seed       uint64
	json       string
	trace      string
}

// Bounds that keep a typing error from taking the whole night.
const (
	maxPasses  = 100
	maxLoad    = 50
	maxSeconds = 600
)

const usage = `Postgres measures guards in front of a real PostgreSQL. The clients do not wait for each other. An answer is useful
within %v; after %v the client gives up.

`

func parse(args []string, out io.Writer) (*settings, error) {
	s := &settings{}
	flags := flag.NewFlagSet("postgres", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprintf(out, usage, useful, deadline)
		flags.PrintDefaults()
	}
	guards := flags.String("guards", "none,spillway,spillway-route,spillway-slo,failsafe,throttle:32",
		"guards to compare: none, fixed:N, throttle:N (chi's), spillway, spillway-route (a shedder for each route), spillway-fair (one with "+
			"FairRoutes), spillway-slo, failsafe, or another peer of bench/peers")
	mixNames := flags.String("mixes", "mixed,dear", "mixes of routes: mixed (70 % one row, 20 % 100 rows, 10 % aggregate), or one of them alone: one, page, dear")
	loads := flags.String("loads", "0.9,1.1,2,5", "loads to step to from half the capacity, as multiples of it")
	faultNames := flags.String("faults", "none,cold,stop,restart,lock", "what happens: none (a step of the load), cold (the app is started straight "+
		"into -coldload), stop (of the database, 3 s), restart (of the database), lock (of the table, 5 s)")
	faultLoads := flags.String("faultloads", "0.9,2", "loads at which the database has its faults")
	flags.Float64Var(&s.coldLoad, "coldload", 3, "load of a cold start")
	sweep := flags.String("sweep", "2,4,8,16,32,64,128", "fixed limits to look for the best among, or none")
	flags.IntVar(&s.passes, "passes", 1, "how often everything is measured; figures are medians over the passes")
	seconds := flags.Float64("seconds", 8, "how long each load lasts; after a fault, how long it goes on")
	settle := flags.Float64("settle", 5, "how long half the capacity lasts before a step, in seconds; 1 for guards that learn nothing")
	slo := flags.Float64("slo", 0, "objective of spillway-slo in milliseconds; 0 takes twice the p99 of the best fixed limit")
	flags.Float64Var(&s.quota, "quota", 0.4, "how many CPUs the app may use")
	flags.Float64Var(&s.dbQuota, "dbquota", 0.8, "how many CPUs the database may use")
	flags.Uint64Var(&s.seed, "seed", 1, "seed of the arrival times")
	flags.StringVar(&s.json, "json", "", "write the figures to this `FILE`")
	flags.StringVar(&s.trace, "trace", "", "write what each shedder believed, every 100 ms, to this `FILE` as CSV")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	s.guards = strings.Split(*guards, ",")
	s.each, s.settle = time.Duration(*seconds*float64(time.Second)), time.Duration(*settle*float64(time.Second))
	s.slo = time.Duration(*slo * float64(time.Millisecond))
	if err := s.lists(*mixNames, *loads, *faultLoads, *faultNames, *sweep); err != nil {
		return nil, err
	}
	return s, s.check()
}

// lists reads the flags that are lists.
func (s *settings) lists(mixNames, loads, faultLoads, faultNames, sweep string) (err error) {
	for name := range strings.SplitSeq(mixNames, ",") {
		m, err := findMix(name)
		if err != nil {
			return err
		}
		s.mixes = append(s.mixes, m)
	}
	if s.loads, err = overload.ParseLoads(loads); err != nil {
		return err
	}
	if s.faultLoads, err = overload.ParseLoads(faultLoads); err != nil {
		return err
	}
	for name := range strings.SplitSeq(faultNames, ",") {
		switch name {
		case "none":
			name = ""
		case "cold":
			name = coldStart
		default:
			if _, err := findFault(name); err != nil {
				return err
			}
		}
		s.faults = append(s.faults, name)
	}
	if sweep == "none" {
		return nil
	}
	for text := range strings.SplitSeq(sweep, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-sweep: limits must be numbers of at least 1, got %q", text)
		}
		s.sweep = append(s.sweep, n)
	}
	return nil
}

func (s *settings) check() error {
	for _, load := range slices.Concat(s.loads, s.faultLoads, []float64{s.coldLoad}) {
		if !(load > 0 && load <= maxLoad) {
			return fmt.Errorf("-loads, -faultloads, -coldload: must be above 0 and at most %d, got %g", maxLoad, load)
		}
	}
	for _, name := range s.guards {
		if name == perRoute {
			continue
		}
		if _, err := findGuard(name, 0); err != nil {
			return fmt.Errorf("-guards: %w", err)
		}
	}
	if slices.Contains(s.guards, withSLO) && s.slo == 0 && s.sweep == nil {
		return fmt.Errorf("-slo: must be above 0 for %s without a -sweep, got 0", withSLO)
	}
	if s.passes < 1 || s.passes > maxPasses {
		return fmt.Errorf("-passes: must be 1 to %d, got %d", maxPasses, s.passes)
	}
	if s.each < time.Second || s.each.Seconds() > maxSeconds {
		return fmt.Errorf("-seconds: must be 1 to %d, got %g", maxSeconds, s.each.Seconds())
	}
	if s.settle < 0 || s.settle.Seconds() > maxSeconds {
		return fmt.Errorf("-settle: must be 0 to %d, got %g", maxSeconds, s.settle.Seconds())
	}
	if s.slo < 0 {
		return fmt.Errorf("-slo: must not be negative, got %v", s.slo)
	}
	for _, quota := range []float64{s.quota, s.dbQuota} {
		if !(quota >= 0.01) || math.IsInf(quota, 1) {
			return fmt.Errorf("-quota, -dbquota: must be at least 0.01, got %g", quota)
		}
	}
	return nil
}
