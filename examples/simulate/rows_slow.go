package main

import (
	"time"

	"github.com/spillway-go/spillway/sim"
)

// slowRows are services that wait for dependencies while the CPU is idle or nearly idle. No queue forms, so nothing
// should be refused.
func slowRows() []suiteRow {
	third := func(scenario sim.Scenario) sim.Scenario { return lasting(scenario, 15*sec, 20*sec, 15*sec) }
	return join(
		at(slowCalls("slow-300ms", sim.Dist{Exp: 300 * ms}, 3*sec, 300), 0.5),
		at(slowCalls("slow-1s", sim.Dist{Exp: sec}, 6*sec, 300), 0.5),
		at(slowCalls("slow-2s", sim.Dist{Exp: 2 * sec}, 12*sec, 300), 0.5),
		at(slowCalls("slow-1s-lognormal", sim.Dist{LogNormal: sec, Sigma: 1}, 8*sec, 300), 0.5),
		at(slowCalls("slow-1s-few", sim.Dist{Exp: sec}, 6*sec, 10), 0.5),
		at(slowCalls("slow-300ms-cpu", sim.Dist{Exp: 300 * ms}, 3*sec, 0), 0.5, 0.8),
		at(slowCalls("slow-1s-cpu", sim.Dist{Exp: sec}, 6*sec, 0), 0.5, 0.8),
		at(slowCalls("slow-2s-cpu", sim.Dist{Exp: 2 * sec}, 12*sec, 0), 0.5),
		at(slowCalls("mostly-20ms-some-3s", sim.Dist{Fixed: 20 * ms, Dear: 3 * sec, DearShare: 0.1}, 5*sec, 300), 0.5),
		at(slowCalls("mostly-20ms-some-3s-cpu", sim.Dist{Fixed: 20 * ms, Dear: 3 * sec, DearShare: 0.1}, 5*sec, 0), 0.5),
		at(slowStep, 0.8),
		at(ramped("ramp-below-slow-1s", slowCalls("", sim.Dist{Exp: sec}, 6*sec, 300)), 0.9),
		at(onOff("on-off-slow-1s", slowCalls("", sim.Dist{Exp: sec}, 6*sec, 300)), 0.8),
		at(onOff("on-off-slow-1s-cpu", slowCalls("", sim.Dist{Exp: sec}, 6*sec, 0)), 0.7),
		remedied(perCall, join(
			one(0.5, third(sim.Named("slow-dependency", 0))),
			one(0.5, third(sim.Named("failing-dependency", 0))),
			one(0.5, slows("slows-300ms-3s-100", 100, 2, sim.Dist{Fixed: 300 * ms}, 10)),
			one(0.5, slows("slows-300ms-3s-400", 400, 2, sim.Dist{Fixed: 300 * ms}, 10)),
			one(0.5, slows("slows-300ms-3s-400-exp", 400, 2, sim.Dist{Exp: 300 * ms}, 10)),
			one(0.5, slows("slows-300ms-3s-2000-exp", 2000, 8, sim.Dist{Exp: 300 * ms}, 10)),
			one(0.5, slows("slows-20ms-200ms-50", 50, 2, sim.Dist{Fixed: 10 * ms, Exp: 10 * ms}, 10)),
			one(0.5, slows("slows-100ms-500ms-20", 20, 2, sim.Dist{Exp: 100 * ms}, 5)),
			one(0.5, slows("slows-100ms-1s-5", 5, 2, sim.Dist{Exp: 100 * ms}, 10)),
			one(0.5, slows("slows-20ms-1200ms-400", 400, 2, sim.Dist{Exp: 20 * ms}, 60)),
			one(0.5, slows("slows-20ms-1200ms-400-equal", 400, 2, sim.Dist{Fixed: 20 * ms}, 60)),
			one(0.5, slows("slows-26ms-330ms-100", 100, 2, sim.Dist{Fixed: 13 * ms, Dear: 130 * ms, DearShare: 0.1}, 13)),
			one(0.5, slows("slows-110ms-3s-700", 700, 2, sim.Dist{Fixed: 55 * ms, Exp: 55 * ms}, 29)),
			one(0.5, slows("slows-340ms-8s-180", 180, 2, sim.Dist{Fixed: 170 * ms, Exp: 170 * ms}, 24)),
			one(0.5, slows("slows-270ms-8s-900", 900, 2, sim.Dist{LogNormal: 270 * ms, Sigma: 1}, 28)),
			one(0.5, slows("slows-400ms-1600ms-140", 140, 2, sim.Dist{Exp: 400 * ms}, 4)),
			one(0.5, slows("slows-50ms-100ms", 400, 2, sim.Dist{Exp: 50 * ms}, 2)),
			one(0.75, slowsWhileBusy()),
			one(0.5, slowsEvenly()),
			one(0.4, slowDatabase("db-half-speed", 0.4)),
			one(0.48, slowDatabase("db-half-speed", 0.48)),
			one(0.8, slowDatabase("db-half-speed", 0.8)),
		)),
	)
}

// slowCalls are requests that wait for a dependency from the start. With a capacity of perSecond the CPU is almost
// idle. With 0 the CPU sets the capacity: 5 ms of two cores for a request.
func slowCalls(name string, wait sim.Dist, useful time.Duration, perSecond float64) func(float64) sim.Scenario {
	return func(load float64) sim.Scenario {
		scenario := steady(name, 40*sec, lib("step"))(load)
		cpu := sim.Dist{Exp: 5 * ms}
		if perSecond > 0 {
			cpu, scenario.Capacity = sim.Dist{Fixed: 200 * time.Microsecond}, perSecond
		}
		scenario.Classes[0].Stages = []sim.Stage{{CPU: cpu, Wait: wait}}
		scenario.Client = sim.Client{Useful: useful, Deadline: useful + useful/2}
		return scenario
	}
}

// slowStep is a step of slow calls, from a tenth of the CPU's capacity: short calls are answered first.
func slowStep(load float64) sim.Scenario {
	scenario := slowCalls("slow-1s-step", sim.Dist{Exp: sec}, 6*sec, 0)(load)
	scenario.Phases = three(0.1, load)
	return scenario
}

// ramped plays a scenario's service from a tenth of the capacity to the load, and back.
func ramped(name string, of func(float64) sim.Scenario) func(float64) sim.Scenario {
	return func(load float64) sim.Scenario {
		scenario := withName(name, of(load))
		scenario.Phases = []sim.Phase{
			{For: 30 * sec, Load: 0.1, To: load, Ramp: true, Measured: true}, {For: 20 * sec, Load: load, To: 0.1, Ramp: true, Measured: true},
		}
		return scenario
	}
}

// onOff plays a scenario's service for five seconds in ten, with silence between them.
func onOff(name string, of func(float64) sim.Scenario) func(float64) sim.Scenario {
	return func(load float64) sim.Scenario {
		scenario := withName(name, of(load))
		scenario.Phases = nil
		for range 5 {
			scenario.Phases = append(scenario.Phases, sim.Phase{For: 5 * sec, Load: load, Measured: true}, sim.Phase{For: 5 * sec, Measured: true})
		}
		return scenario
	}
}

// slows is a service with an idle CPU whose dependency gets slower by a factor for 20 seconds.
func slows(name string, perSecond float64, cores int, wait sim.Dist, factor float64) sim.Scenario {
	scenario := sim.Named("step", 0.5)
	scenario.Name, scenario.Machine.Cores, scenario.Capacity = name, cores, 2*perSecond
	scenario.Phases = three(0.5, 0.5)
	scenario.Classes[0].Stages = []sim.Stage{{CPU: sim.Dist{Fixed: 200 * time.Microsecond}, Wait: wait}}
	useful := 5 * sec
	if mean := max(wait.Exp, wait.LogNormal); mean > 0 {
		useful = time.Duration(6 * factor * float64(mean))
	}
	scenario.Client = sim.Client{Useful: max(sec, useful), Deadline: max(sec, useful) * 3 / 2}
	scenario.Events = []sim.Event{{At: 15 * sec, Stretch: factor}, {At: 35 * sec, Stretch: 1}}
	return scenario
}

// slowsWhileBusy is a dependency that slows from 20 to 300 ms while three quarters of the CPU are in use.
func slowsWhileBusy() sim.Scenario {
	scenario := sim.Named("step", 0.75)
	scenario.Name, scenario.Phases = "slows-20ms-300ms-busy", three(0.75, 0.75)
	scenario.Classes[0].Stages[0].Wait = sim.Dist{Fixed: 20 * ms}
	scenario.Client = sim.Client{Useful: sec, Deadline: 2 * sec}
	scenario.Events = []sim.Event{{At: 15 * sec, Slower: 280 * ms}, {At: 35 * sec, Slower: -280 * ms}}
	return scenario
}

// slowsEvenly is a dependency that slows steadily from 100 ms to two seconds within a minute.
func slowsEvenly() sim.Scenario {
	scenario := slows("slows-evenly", 200, 2, sim.Dist{Fixed: 50 * ms, Exp: 50 * ms}, 1)
	scenario.Phases = []sim.Phase{{For: 15 * sec, Load: 0.5}, {For: 70 * sec, Load: 0.5, Measured: true}, {For: 10 * sec, Load: 0.5}}
	scenario.Client = sim.Client{Useful: 5 * sec, Deadline: 8 * sec}
	scenario.Events = nil
	const steps = 120
	for i := range steps {
		scenario.Events = append(scenario.Events, sim.Event{At: 15*sec + time.Duration(i)*500*ms, Slower: 1900 * ms / steps})
	}
	return scenario
}

// slowDatabase is a pool in front of a database that works at half its speed for 20 seconds, so that a load above 0.5
// is too much for it.
func slowDatabase(name string, load float64) sim.Scenario {
	scenario := pool(name, 16, 2, sim.Dist{Fixed: 10 * ms, Exp: 10 * ms})(load)
	scenario.Phases = three(load, load)
	scenario.Client = sim.Client{Useful: 500 * ms, Deadline: 2 * sec}
	scenario.Events = []sim.Event{{At: 15 * sec, Stretch: 2}, {At: 35 * sec, Stretch: 1}}
	return scenario
}
