package main

import (
	"fmt"
	"io"
	"math"

	"github.com/spillway-go/spillway/sim"
)

// abouts describe the scenarios of the library for -list, by name.
var abouts = map[string]string{
	"step":               "0.7, then the load, then 0.7 of the capacity",
	"step-solid":         "a step of work that does not yield",
	"step-quota":         "a step under a quota of half a CPU",
	"ramp":               "rises from 0.5 to 3 in two minutes, and falls",
	"bursts":             "300 ms at 3 in every five seconds",
	"steady":             "the load all the time",
	"steady-70":          "0.7 all the time: nothing should be refused",
	"steady-90":          "0.9 all the time: nothing should be refused",
	"steady-95":          "0.95 all the time",
	"bimodal":            "a step; 9 requests of 2 ms to one of 82 ms",
	"cpu-io":             "a step; a wait of 100 ms amid the CPU work",
	"slow-dependency":    "a dependency slows down; the CPU is idle",
	"failing-dependency": "nine in ten calls to a dependency fail",
	"pool":               "a step; a pool of 8 connections is short",
	"lock":               "a step; 3 requests in 10 need one lock",
	"neighbour":          "a neighbour takes half of each core",
	"quota-cut":          "the CPU quota is halved for a minute",
	"pauses":             "a pause of 60 ms in every second",
	"retry-storm":        "5 s at 3, then 0.8; clients retry 3 times",
	"priorities":         "a step; 1 in 10 critical, 6 in 10 sheddable",
	"critical-flood":     "a step; 19 in 20 requests are critical",
	"noisy-tenant":       "one tenant sends nine tenths of a step to 3",
	"jobs":               "a step; jobs of 1 to 4 calls must all succeed",
	"cold-start":         "0.95 from nothing, with cold caches",
	"idle-step":          "a minute of silence, then a step",
	"impatient":          "a step; clients leave after 200 ms",
	"clock-jump":         "a step; the clock jumps an hour and back",
	"blind":              "a step; all sensors fail",
	"server-step":        "a step for the server that real/ measures",
	"server-ramp":        "a ramp for the same server",
	"server-dependency":  "a slow dependency of the same server",
	"slow-host":          "one of four hosts is slow for a minute",
}

// list prints the scenarios. Loads are multiples of the capacity.
func list(out io.Writer, load float64) {
	fmt.Fprintf(out, "%-18s %5s %6s  %s\n", "scenario", "lasts", "peak", "what happens; loads are multiples of capacity")
	for _, s := range sim.Library(load) {
		peak := 0.0
		for _, p := range s.Phases {
			peak = math.Max(peak, math.Max(p.Load, p.To))
		}
		fmt.Fprintf(out, "%-18s %4.0fs %5.4gx  %s\n", s.Name, length(s).Seconds(), peak, abouts[s.Name])
	}
	fmt.Fprintln(out, "\nPlay one: go run ./examples/simulate -scenario pool -load 5")
}
