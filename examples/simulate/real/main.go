// Command real checks the simulator against reality. A real HTTP server goes through an overload, the simulated one
// goes through the same, and their figures stand side by side.
//
//	go run ./examples/simulate/real -shape step -load 5
//	go run ./examples/simulate/real -shape ramp -load 3
//	go run ./examples/simulate/real -shape dependency
//
// The service needs 2 ms of CPU for a request and may use 0.4 CPUs. The simulator takes one figure from the measurement: the
// cost of an answer beyond its work, which follows from the measured capacity.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/usage"
	"github.com/spillway-go/spillway/lab/overload"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/sim"
)

const (
	cpu   = 2 * time.Millisecond
	quota = 0.4
	each  = 10 * time.Second
)

const about = `real shows how far to trust the simulator. A real HTTP server on this machine
goes through an overload for some seconds, with Spillway and without, and a
simulated one goes through the same. Look at the pairs of rows.`

func main() {
	config := overload.Config{
		Guards: []overload.Guard{{Name: "spillway", Wrap: protected}},
		Works: []overload.Work{{
			Name: "dependency", About: "2 ms of CPU and a wait of 50 ms, for some seconds of 350 ms", Workers: 64, New: dependency,
		}},
	}
	if overload.IsChild() {
		os.Exit(overload.Main(config))
	}
	switch err := run(context.Background(), &config, os.Args[1:], os.Stdout); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "real:", err)
		os.Exit(1)
	}
}

// protected is Spillway with default options.
func protected(next http.Handler) (http.Handler, overload.StatsFunc, error) {
	shed, err := shedder.New(nil)
	if err != nil {
		return nil, nil, err
	}
	return httpgate.Handler(spillway.New(shed), nil)(next), nil, nil
}

// dependency is the work of a service whose dependency is slow from the fourth to the ninth second of its life.
func dependency(b *overload.Burner) func() {
	began := time.Now()
	return func() {
		b.BurnYielding(cpu)
		wait := 50 * time.Millisecond
		if age := time.Since(began); age >= 4*time.Second && age < 9*time.Second {
			wait = 350 * time.Millisecond
		}
		time.Sleep(wait)
	}
}

func run(ctx context.Context, config *overload.Config, args []string, out io.Writer) error {
	flags := usage.New("real", about, out)
	flags.SetOutput(out)
	shape := flags.String("shape", "step", "step, ramp or dependency")
	load := flags.Float64("load", 5, "as a multiple of the capacity; the dependency is slow at 0.5")
	seed := flags.Uint64("seed", 1, "of the arrivals")
	if err := flags.Parse(args); err != nil {
		return err
	}
	plan := overload.Plan{
		Guards: []string{"none", "spillway"}, Work: "cpu", Loads: []float64{*load}, Each: each, Settle: 2 * time.Second,
		Quota: quota, Seed: *seed, Recheck: true,
	}
	scenario := func(beside time.Duration) sim.Scenario { return withBeside(sim.Named("server-step", *load), beside) }
	switch *shape {
	case "step":
	case "ramp":
		plan.Shape = overload.Ramp
		scenario = func(beside time.Duration) sim.Scenario { return withBeside(sim.Named("server-ramp", *load), beside) }
	case "dependency":
		plan.Work, plan.Loads = "dependency", []float64{0.5}
		scenario = func(beside time.Duration) sim.Scenario { return withBeside(sim.Named("server-dependency", 0), beside) }
	default:
		return fmt.Errorf("unknown shape %q; there are step, ramp and dependency", *shape)
	}
	measured, err := config.Measure(ctx, plan, out)
	if err != nil {
		return err
	}
	return compare(out, measured, scenario(beside(measured)), *seed)
}

// beside is the cost of an answered request beyond its work.
func beside(measured *overload.Run) time.Duration {
	capacity := measured.Capacity
	if after := measured.CapacityAfter; after > 0 {
		capacity = (capacity + after) / 2
	}
	return max(time.Microsecond, time.Duration(quota/capacity*float64(time.Second))-cpu)
}

// compare simulates the measured run, and shows both.
func compare(out io.Writer, measured *overload.Run, s sim.Scenario, seed uint64) error {
	fmt.Fprintf(out, "\n%s: %.0f requests a second measured, %v each beside the work\n\n", s.Name, measured.Capacity, beside(measured))
	fmt.Fprintf(out, "%-9s %-10s %8s %10s %8s %8s %10s\n", "policy", "server", "goodput", "first 5 s", "refused", "p99, ms", "refusal, ms")
	for _, r := range measured.Results {
		simulated, err := sim.Run(s, seed, gates[r.Guard])
		if err != nil {
			return err
		}
		const line = "%-9s %-10s %8.2f %10.2f %8.2f %8.0f %10.0f\n"
		fmt.Fprintf(out, line, r.Guard, "real", r.GoodputAll, r.Goodput5s, r.ShedAll, known(r.P99All), known(r.RefusedP99All))
		fmt.Fprintf(out, line, r.Guard, "simulated", simulated.Goodput, simulated.First5s, simulated.Shed, ms(simulated.P99), ms(simulated.RefusedP99))
	}
	return nil
}

// gates are the guards for the simulator. The sampler of the shedder for scheduling latencies is the host's.
var gates = map[string]func(*sim.Host) (*spillway.Gate, error){
	"none": nothing,
	"spillway": func(h *sim.Host) (*spillway.Gate, error) {
		shed, err := shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched()})
		return spillway.New(shed), err
	},
}

func nothing(*sim.Host) (*spillway.Gate, error) { return spillway.New(), nil }

func known(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// withBeside adds the cost of an answered request beyond its work to the scenario of a small server, whose Parse is a part of
// it.
func withBeside(s sim.Scenario, beside time.Duration) sim.Scenario {
	s.Classes[0].Stages[0].CPU.Fixed += max(0, beside-s.Machine.Parse)
	return s
}

// ms returns a duration in milliseconds, or NaN if it has no value.
func ms(d time.Duration) float64 {
	if d == math.MaxInt64 {
		return math.NaN()
	}
	return float64(d) / float64(time.Millisecond)
}
