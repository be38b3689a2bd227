package main

import (
	"time"

	"github.com/spillway-go/spillway/sim"
)

// cpuRows are services whose CPU is the bottleneck.
func cpuRows() []suiteRow {
	return join(
		at(step(lib("step")), 1.2, 1.5, 2, 5, 10, 30),
		at(step(lib("step-solid")), 1.2, 2, 5, 10, 30),
		at(step(lib("step-quota")), 1.2, 2, 5, 10, 30),
		at(solidAndQuota, 0.9, 1.05, 1.1, 1.2, 2, 5, 10),
		remedied(perRoute, at(step(lib("bimodal")), 1.2, 2, 5, 10, 30)),
		at(step(lib("cpu-io")), 1.2, 2, 5, 10, 30),
		at(cpuAndLongWait, 1.2, 2, 5),
		at(named("step-16-cores", step(func(load float64) sim.Scenario {
			scenario := sim.Named("step", load)
			scenario.Machine.Cores = 16
			return scenario
		})), 2, 10),
		one(3, lasting(sim.Named("ramp", 0), 30*sec, 30*sec)),
		one(3, bursts("bursts", sim.Named("step", 1))),
		at(steady("steady", 40*sec, lib("step")), 0.7, 0.8, 0.9, 0.95),
		at(steady("steady-solid", 40*sec, lib("step-solid")), 0.7, 0.9),
		at(steady("steady-quota", 40*sec, lib("step-quota")), 0.7, 0.9),
		at(steady("steady-bimodal", 40*sec, lib("bimodal")), 0.7, 0.9),
		at(steady("steady-cpu-io", 40*sec, lib("cpu-io")), 0.9),
		at(withClient(sec, 2*sec, steady("steady-patient", 40*sec, lib("step"))), 0.9, 0.95),
		at(withClient(2*sec, 4*sec, steady("steady-bimodal-patient", 40*sec, lib("bimodal"))), 0.7, 0.9),
	)
}

// cpuAndLongWait is a step for requests of 10 ms of CPU that wait 300 ms on average before they are answered.
func cpuAndLongWait(load float64) sim.Scenario {
	scenario := step(lib("step"))(load)
	scenario.Name = "cpu-wait-300ms"
	scenario.Classes[0].Stages[0].Wait = sim.Dist{Exp: 300 * ms}
	scenario.Client = sim.Client{Useful: 2 * sec, Deadline: 4 * sec}
	return scenario
}

// solidAndQuota is a step for requests of 2 ms that do not yield, under a quota of 0.4 CPU. All else waits for a processor meanwhile, such
// as the steps of the shedder.
func solidAndQuota(load float64) sim.Scenario {
	scenario := step(lib("step-solid"))(load)
	scenario.Name = "step-solid-quota"
	scenario.Machine = sim.Machine{Cores: 1, Quota: 0.4}
	scenario.Classes[0].Stages[0].CPU = sim.Dist{Fixed: 2 * ms}
	return scenario
}

// solidAndWaitAndQuota is the same for requests of 5 ms that also wait 25 ms, both unevenly, under a quota of one CPU of two.
func solidAndWaitAndQuota(load float64) sim.Scenario {
	scenario := solidAndQuota(load)
	scenario.Machine = sim.Machine{Cores: 2, Quota: 1}
	scenario.Classes[0].Stages[0] = sim.Stage{CPU: sim.Dist{LogNormal: 5 * ms, Sigma: 1}, Wait: sim.Dist{LogNormal: 25 * ms, Sigma: 1}}
	return scenario
}

// bursts is half a minute at 0.6 with 300 ms at 3 times the capacity every five seconds.
func bursts(name string, scenario sim.Scenario) sim.Scenario {
	scenario.Name, scenario.Phases = name, nil
	for range 6 {
		scenario.Phases = append(scenario.Phases, sim.Phase{For: 4700 * ms, Load: 0.6, Measured: true},
			sim.Phase{For: 300 * ms, Load: 3, Measured: true})
	}
	return scenario
}

// troubleRows are machines in trouble.
func troubleRows() []suiteRow {
	pauses := lasting(sim.Named("pauses", 0), 40*sec)
	pauses.Phases[0].Load = 0.7
	pauses.Client = sim.Client{Useful: sec, Deadline: 2 * sec}
	pauses.Name, pauses.Events = "pauses-300ms", []sim.Event{{At: 5 * sec, Every: 5 * sec, Pause: 300 * ms}}
	cores := sim.Named("steady", 0.4)
	cores.Name, cores.Machine.Cores = "cores-cut", 4
	cores.Phases = three(0.4, 0.4)
	cores.Events = []sim.Event{{At: 15 * sec, Cores: 1}, {At: 35 * sec, Cores: 4}}
	more := sim.Named("steady", 0.8)
	more.Name, more.Machine.Cores = "cores-added", 4
	more.Phases = three(0.2, 2)
	more.Events = []sim.Event{{At: 0, Cores: 1}, {At: 20 * sec, Cores: 4}}
	stops := func(name, base string) func(float64) sim.Scenario {
		return func(load float64) sim.Scenario {
			scenario := lasting(sim.Named(base, load), 15*sec, 20*sec, 10*sec)
			scenario.Client.Useful = 500 * ms // a stop alone takes nearly half of it
			scenario.Name, scenario.Events = name, []sim.Event{{At: 100 * ms, Every: 1010 * ms, Pause: 200 * ms}}
			return scenario
		}
	}
	third := func(scenario sim.Scenario) sim.Scenario { return lasting(scenario, 15*sec, 20*sec, 15*sec) }
	return join(
		one(0.8, third(sim.Named("neighbour", 0))),
		one(0.8, third(sim.Named("quota-cut", 0))),
		one(0.4, cores),
		one(2, more),
		one(0.6, lasting(sim.Named("pauses", 0), 40*sec)),
		one(0.7, pauses),
		at(stops("stops-cpu", "step"), 0.7, 1.2, 2, 10),
		at(stops("stops-pool", "pool"), 0.7, 1.2, 2, 10),
		one(0.95, lasting(sim.Named("cold-start", 0), 40*sec)),
		remedied(perHost, join(
			one(0.7, third(sim.Named("slow-host", 0))),
			one(0.7, third(withName("slow-host-least-loaded", leastLoaded(sim.Named("slow-host", 0))))),
		)),
		at(clockJump, 5),
		at(step(lib("blind")), 2, 5),
		at(func(load float64) sim.Scenario { return sim.Named("server-step", load) }, 2, 5, 10),
		at(func(load float64) sim.Scenario { return sim.Named("server-ramp", load) }, 3),
		one(0.5, sim.Named("server-dependency", 0)),
	)
}

// three are 15 seconds at one load, 20 at another, and 15 at the first again.
func three(before, load float64) []sim.Phase {
	return []sim.Phase{{For: 15 * sec, Load: before}, {For: 20 * sec, Load: load, Measured: true}, {For: 15 * sec, Load: before}}
}

func withName(name string, scenario sim.Scenario) sim.Scenario {
	scenario.Name = name
	return scenario
}

// clockJump is a shorter version of the library's scenario; the clock jumps during the overload.
func clockJump(load float64) sim.Scenario {
	scenario := sim.Named("clock-jump", load)
	scenario.Phases = step(lib("step"))(load).Phases
	scenario.Events = []sim.Event{{At: 20 * sec, Clock: time.Hour}, {At: 28 * sec, Clock: -time.Hour}}
	return scenario
}

// clientRows vary the clients.
func clientRows() []suiteRow {
	idle := func(load float64) sim.Scenario { return lasting(sim.Named("idle-step", load), 10*sec, 30*sec, 20*sec) }
	return join(
		one(3, lasting(sim.Named("retry-storm", 0), 15*sec, 5*sec, 30*sec)),
		at(step(lib("priorities")), 2, 5, 10),
		at(step(lib("critical-flood")), 5),
		one(3, lasting(sim.Named("noisy-tenant", 0), 15*sec, 20*sec, 15*sec)),
		at(step(lib("jobs")), 2, 5),
		at(idle, 3, 10),
		at(step(lib("impatient")), 2, 5, 10),
	)
}
