package sim

import (
	"fmt"
	"time"
)

// service is the service of most scenarios: two cores, 10 ms of CPU on average, so 200 requests a second and a little less
// for their parsing.
func service(name string, phases ...Phase) Scenario {
	return Scenario{
		Name:    name,
		Machine: Machine{Cores: 2},
		Classes: []Class{{Name: "all", Share: 1, Stages: []Stage{{CPU: Dist{Exp: 10 * time.Millisecond}}}}},
		Phases:  phases,
	}
}

// step is a minute at 0.7, a minute at load, and a minute at 0.7 of the capacity.
func step(load float64) Scenario {
	return service("step", Phase{For: time.Minute, Load: 0.7}, Phase{For: time.Minute, Load: load, Measured: true},
		Phase{For: time.Minute, Load: 0.7})
}

// stepSolid is a step of work that does not yield: each request keeps its processor until it is done.
func stepSolid(load float64) Scenario {
	s := step(load)
	s.Name = "step-solid"
	s.Classes[0].Slice = 10 * time.Millisecond
	return s
}

// stepQuota is step under a quota of half a CPU.
func stepQuota(load float64) Scenario {
	s := step(load)
	s.Name = "step-quota"
	s.Machine = Machine{Cores: 1, Quota: 0.5}
	s.Classes[0].Stages[0].CPU = Dist{Exp: 2 * time.Millisecond}
	return s
}

// ramp goes from 0.5 to 3 times the capacity in two minutes, and back.
func ramp() Scenario {
	return service("ramp", Phase{For: 2 * time.Minute, Load: 0.5, To: 3, Ramp: true, Measured: true},
		Phase{For: 2 * time.Minute, Load: 3, To: 0.5, Ramp: true})
}

// bursts is five minutes at 0.6 with 300 ms at 3 times the capacity every five seconds.
func bursts() Scenario {
	s := service("bursts")
	for range 60 {
		s.Phases = append(s.Phases, Phase{For: 4700 * time.Millisecond, Load: 0.6, Measured: true},
			Phase{For: 300 * time.Millisecond, Load: 3, Measured: true})
	}
	return s
}

// steady is five minutes at the given load.
func steady(load float64) Scenario {
	return service("steady", Phase{For: 5 * time.Minute, Load: load, Measured: true})
}

// bimodal mixes nine requests of 2 ms with one of 82 ms.
func bimodal(load float64) Scenario {
	s := step(load)
	s.Name = "bimodal"
	s.Classes = []Class{
		{Name: "cheap", Share: 9, Stages: []Stage{{CPU: Dist{Fixed: 2 * time.Millisecond}}}},
		{Name: "dear", Share: 1, Stages: []Stage{{CPU: Dist{Fixed: 82 * time.Millisecond}}}},
	}
	return s
}

// cpuAndIO is a step for requests that wait 100 ms on average between two halves of their CPU.
func cpuAndIO(load float64) Scenario {
	s := step(load)
	s.Name = "cpu-io"
	half := Dist{Exp: 5 * time.Millisecond}
	s.Classes[0].Stages = []Stage{
		{CPU: half, Wait: Dist{Fixed: 50 * time.Millisecond, Exp: 50 * time.Millisecond}}, {CPU: half},
	}
	s.Client.Useful = 500 * time.Millisecond
	return s
}

// slowDependency is three minutes at half the capacity. In the second minute the wait on a dependency rises from 50 to
// 500 ms while the CPU is idle. Answers after 900 ms are worthless.
func slowDependency() Scenario {
	s := service("slow-dependency", Phase{For: time.Minute, Load: 0.5}, Phase{For: time.Minute, Load: 0.5, Measured: true},
		Phase{For: time.Minute, Load: 0.5})
	s.Classes[0].Stages = []Stage{{CPU: Dist{Exp: 10 * time.Millisecond}, Wait: Dist{Fixed: 50 * time.Millisecond}}}
	s.Client.Useful = 900 * time.Millisecond
	s.Events = []Event{
		{At: time.Minute, Slower: 450 * time.Millisecond}, {At: 2 * time.Minute, Slower: -450 * time.Millisecond},
	}
	return s
}

// pool is a step for a pool of 8 connections, each used for 25 ms, behind an almost idle CPU.
func pool(load float64) Scenario {
	s := step(load)
	s.Name = "pool"
	s.Machine.Pools = map[string]int{"db": 8}
	s.Classes[0].Stages = []Stage{
		{CPU: Dist{Fixed: 200 * time.Microsecond}}, {Wait: Dist{Fixed: 25 * time.Millisecond}, During: "db"},
	}
	return s
}

// lock is a step for three requests in ten that hold one lock for 5 ms: the lock is used up when the CPU is at 40 %.
func lock(load float64) Scenario {
	s := step(load)
	s.Name = "lock"
	s.Machine.Pools = map[string]int{"lock": 1}
	cpu := Stage{CPU: Dist{Exp: 1200 * time.Microsecond}}
	s.Classes = []Class{
		{Name: "free", Share: 7, Stages: []Stage{cpu}},
		{Name: "locked", Share: 3, Stages: []Stage{cpu, {Wait: Dist{Fixed: 5 * time.Millisecond}, During: "lock"}}},
	}
	return s
}

// neighbour is a load of 0.8; in the second of three minutes, a neighbour takes half of each core.
func neighbour() Scenario {
	s := service("neighbour", Phase{For: time.Minute, Load: 0.8}, Phase{For: time.Minute, Load: 0.8, Measured: true},
		Phase{For: time.Minute, Load: 0.8})
	s.Events = []Event{{At: time.Minute, Speed: 0.5}, {At: 2 * time.Minute, Speed: 1}}
	return s
}

// pauses is a load of 0.6 with a pause of 60 ms every second, such as those of a garbage collector that is short of memory.
func pauses() Scenario {
	s := service("pauses", Phase{For: 5 * time.Minute, Load: 0.6, Measured: true})
	s.Events = []Event{{At: time.Second, Every: time.Second, Pause: 60 * time.Millisecond}}
	return s
}

// retryStorm triggers a metastable failure: five seconds at 3 times the capacity, then 0.8, with clients that retry up
// to three times.
func retryStorm() Scenario {
	s := service("retry-storm", Phase{For: 30 * time.Second, Load: 0.8}, Phase{For: 5 * time.Second, Load: 3, Measured: true},
		Phase{For: time.Minute, Load: 0.8})
	s.Client.Retries = 3
	return s
}

// priorities is a step in which one request in ten is critical, three normal, and six may be shed.
func priorities(load float64) Scenario {
	s := step(load)
	s.Name = "priorities"
	work := []Stage{{CPU: Dist{Exp: 10 * time.Millisecond}}}
	s.Classes = []Class{
		{Name: "critical", Share: 1, Priority: 4, Stages: work},
		{Name: "normal", Share: 3, Stages: work},
		{Name: "sheddable", Share: 6, Priority: -4, Stages: work},
	}
	return s
}

// idleThenStep is a minute of silence and a step.
func idleThenStep(load float64) Scenario {
	s := service("idle-step", Phase{For: 10 * time.Second, Load: 0.5}, Phase{For: time.Minute},
		Phase{For: 30 * time.Second, Load: load, Measured: true})
	return s
}

// Scenarios of the library with their own load ignore the load parameter.
func fixed(s func() Scenario) func(float64) Scenario {
	return func(float64) Scenario { return s() }
}

func steadyAt(load float64) func(float64) Scenario {
	return func(float64) Scenario {
		s := steady(load)
		s.Name = fmt.Sprintf("steady-%.0f", load*100)
		return s
	}
}

// library holds the scenarios, in the order of Library.
var library = []func(load float64) Scenario{
	step, stepSolid, stepQuota, fixed(ramp), fixed(bursts), steady, steadyAt(0.7), steadyAt(0.9), steadyAt(0.95), bimodal, cpuAndIO,
	fixed(slowDependency), fixed(failingDependency), pool, lock, fixed(neighbour), fixed(quotaCut), fixed(pauses), fixed(retryStorm),
	priorities, criticalFlood, fixed(noisyTenant), jobs, fixed(coldStart), idleThenStep, impatient, clockJump, blind, serverStep,
	serverRamp, fixed(serverDependency), fixed(slowHost),
}

// Library returns all scenarios, each with a unique name; load is the load of those that step, as in [Named].
func Library(load float64) []Scenario {
	all := make([]Scenario, len(library))
	for i, s := range library {
		all[i] = s(load)
	}
	return all
}

// Named returns the scenario of the library with that name. Load is the greatest load, as a multiple of the capacity;
// scenarios marked with * have a load of their own. Change the fields of the result to vary a scenario. Named panics if
// there is no such scenario; check names from users against [Library].
//
//	step                 a minute at 0.7, a minute at load, a minute at 0.7
//	step-solid           step with work that does not yield
//	step-quota           step under a quota of half a CPU
//	ramp                 * from 0.5 to 3 in two minutes, and back
//	bursts               * 300 ms at 3 every five seconds
//	steady               five minutes at load
//	steady-70, -90, -95  * steady at 0.7, 0.9 and 0.95
//	bimodal              step; nine requests of 2 ms to one of 82 ms
//	cpu-io               step; a wait of 100 ms between two halves of the CPU work
//	slow-dependency      * a dependency slows from 50 to 500 ms for a minute while the CPU is idle
//	failing-dependency   * nine in ten calls to a dependency fail for a minute
//	pool                 step; a pool of 8 connections is the bottleneck
//	lock                 step; three requests in ten hold one lock
//	neighbour            * a neighbour takes half of each core for a minute
//	quota-cut            * the CPU quota is halved for a minute
//	pauses               * 60 ms of pause every second
//	retry-storm          * five seconds at 3, then 0.8, with clients that retry up to three times
//	priorities           step; one request in ten critical, three normal, six sheddable
//	critical-flood       step; nineteen requests in twenty critical
//	noisy-tenant         * a step to 3, nine tenths of it from one tenant
//	jobs                 step; jobs of one to four calls, each of which has to succeed
//	cold-start           * 0.95 from nothing; the first 500 requests need five times the CPU
//	idle-step            a minute of silence, then a step
//	impatient            step; clients leave after 200 ms
//	clock-jump           step; the clock jumps an hour ahead and back
//	blind                step; all sensors fail
//	server-step          the small server with a CPU quota that examples/simulate/real measures, in a step of ten seconds
//	server-ramp          the same server; the load rises evenly from 0.5
//	server-dependency    * the same server at 0.5; a dependency slows from 50 to 350 ms for five seconds
//	slow-host            * four hosts behind a balancer, of which one is four times slower for a minute
func Named(name string, load float64) Scenario {
	for _, scenario := range library {
		if s := scenario(load); s.Name == name {
			return s
		}
	}
	panic(fmt.Sprintf("sim: Named: name must be that of a scenario of the library, got %q", name))
}
