package main

import (
	"fmt"
	"time"

	"github.com/spillway-go/spillway/sim"
)

// A suiteRow is a scenario at one load.
type suiteRow struct {
	load     float64
	scenario sim.Scenario
	remedy   string // advice where a policy is worse than none; empty for the usual advice
}

// key names the row, as -rows and the golden file know it.
func (r *suiteRow) key() string { return fmt.Sprintf("%s@%.4g", r.scenario.Name, r.load) }

const (
	usualRemedy = "a Concurrency limit set by hand, or CPUOnly, so that only the CPU decides"
	perRoute    = "one shedder per route: one for all refuses cheap requests because of the dear ones"
	perCall     = "CPUOnly, so that only the CPU decides, and a limit or a breaker around the dependency"
	perHost     = "a balancer that sends less to the slow host"
)

// rows returns all rows of the suite, in the order in which they are shown.
func rows() []suiteRow {
	var all []suiteRow
	for _, part := range [][]suiteRow{
		cpuRows(), troubleRows(), clientRows(), slowRows(), poolRows(), edgeRows(), coldRows(), mixRows(), faultRows(),
	} {
		all = append(all, part...)
	}
	return all
}

const sec, ms = time.Second, time.Millisecond

// at makes a row of a scenario for each load.
func at(of func(load float64) sim.Scenario, loads ...float64) []suiteRow {
	var all []suiteRow
	for _, load := range loads {
		all = append(all, suiteRow{load: load, scenario: of(load)})
	}
	return all
}

// one makes a row of a scenario with its own load.
func one(load float64, scenario sim.Scenario) []suiteRow {
	return []suiteRow{{load: load, scenario: scenario}}
}

// remedied gives rows their own advice.
func remedied(remedy string, all []suiteRow) []suiteRow {
	for i := range all {
		all[i].remedy = remedy
	}
	return all
}

func join(parts ...[]suiteRow) []suiteRow {
	var all []suiteRow
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// lasting returns a scenario with other lengths of its phases; its events move with them.
func lasting(scenario sim.Scenario, spans ...time.Duration) sim.Scenario {
	old := scenario.Phases
	phases := append([]sim.Phase(nil), old...)
	for i := range phases {
		phases[i].For = spans[i]
	}
	events := append([]sim.Event(nil), scenario.Events...)
	for i, ev := range events {
		var before, after time.Duration
		for j, p := range old {
			if ev.At <= before+p.For || j == len(old)-1 {
				events[i].At = after + time.Duration(float64(ev.At-before)/float64(p.For)*float64(spans[j]))
				break
			}
			before += p.For
			after += spans[j]
		}
	}
	scenario.Phases, scenario.Events = phases, events
	return scenario
}

// step shortens a scenario of the library that goes up and down again.
func step(of func(load float64) sim.Scenario) func(float64) sim.Scenario {
	return func(load float64) sim.Scenario { return lasting(of(load), 15*sec, 20*sec, 15*sec) }
}

// lib returns the scenario of the library with that name, at any load.
func lib(name string) func(load float64) sim.Scenario {
	return func(load float64) sim.Scenario { return sim.Named(name, load) }
}

func leastLoaded(scenario sim.Scenario) sim.Scenario {
	scenario.Machine.Balance = sim.LeastLoaded
	return scenario
}

func named(name string, of func(load float64) sim.Scenario) func(float64) sim.Scenario {
	return func(load float64) sim.Scenario {
		scenario := of(load)
		scenario.Name = name
		return scenario
	}
}

// steady plays a scenario's service at one load from the start, and measures all of it.
func steady(name string, span time.Duration, of func(load float64) sim.Scenario) func(float64) sim.Scenario {
	return func(load float64) sim.Scenario {
		scenario := of(load)
		scenario.Name, scenario.Events = name, nil
		scenario.Phases = []sim.Phase{{For: span, Load: load, Measured: true}}
		return scenario
	}
}

// cold starts a scenario's service straight into the load, and then lets it rest.
func cold(name string, of func(load float64) sim.Scenario) func(float64) sim.Scenario {
	return func(load float64) sim.Scenario {
		scenario := steady(name, 30*sec, of)(load)
		scenario.Phases = append(scenario.Phases, sim.Phase{For: 10 * sec, Load: 0.6})
		return scenario
	}
}

// withClient says how long an answer is useful and when clients leave.
func withClient(useful, deadline time.Duration, of func(load float64) sim.Scenario) func(float64) sim.Scenario {
	return func(load float64) sim.Scenario {
		scenario := of(load)
		scenario.Client.Useful, scenario.Client.Deadline = useful, deadline
		return scenario
	}
}
