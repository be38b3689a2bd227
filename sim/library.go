package sim

import "time"

// service is the service of most scenarios: two cores, 10 ms of CPU in the mean, so 200 requests a second and a little less
// for their parsing.
func service(name string, phases ...Phase) Scenario {
	return Scenario{
		Name:    name,
		Machine: Machine{Cores: 2},
		Classes: []Class{{Name: "all", Share: 1, Stages: []Stage{{CPU: Dist{Exp: 10 * time.Millisecond}}}}},
		Phases:  phases,
	}
}

// Step is a minute at 0.7, a minute at load, and a minute at 0.7 of the capacity.
func Step(load float64) Scenario {
	return service("step", Phase{For: time.Minute, Load: 0.7}, Phase{For: time.Minute, Load: load, Measured: true},
		Phase{For: time.Minute, Load: 0.7})
}

// StepSolid is [Step] for work that does not yield: each request keeps its processor until it is done.
func StepSolid(load float64) Scenario {
	s := Step(load)
	s.Name = "step-solid"
	s.Classes[0].Slice = 10 * time.Millisecond
	return s
}

// StepQuota is [Step] under a quota of half a CPU.
func StepQuota(load float64) Scenario {
	s := Step(load)
	s.Name = "step-quota"
	s.Machine = Machine{Cores: 1, Quota: 0.5}
	s.Classes[0].Stages[0].CPU = Dist{Exp: 2 * time.Millisecond}
	return s
}

// Ramp goes from 0.5 to 3 times the capacity in two minutes, and back.
func Ramp() Scenario {
	return service("ramp", Phase{For: 2 * time.Minute, Load: 0.5, To: 3, Ramp: true, Measured: true},
		Phase{For: 2 * time.Minute, Load: 3, To: 0.5, Ramp: true})
}

// Bursts is five minutes at 0.6 with 300 ms at 3 times the capacity every five seconds.
func Bursts() Scenario {
	s := service("bursts")
	for range 60 {
		s.Phases = append(s.Phases, Phase{For: 4700 * time.Millisecond, Load: 0.6, Measured: true},
			Phase{For: 300 * time.Millisecond, Load: 3, Measured: true})
	}
	return s
}

// Steady is five minutes at the given load.
func Steady(load float64) Scenario {
	return service("steady", Phase{For: 5 * time.Minute, Load: load, Measured: true})
}

// Bimodal mixes nine requests of 2 ms with one of 82 ms.
func Bimodal(load float64) Scenario {
	s := Step(load)
	s.Name = "bimodal"
	s.Classes = []Class{
		{Name: "cheap", Share: 9, Stages: []Stage{{CPU: Dist{Fixed: 2 * time.Millisecond}}}},
		{Name: "dear", Share: 1, Stages: []Stage{{CPU: Dist{Fixed: 82 * time.Millisecond}}}},
	}
	return s
}

// CPUAndIO is a step for requests that wait 100 ms in the mean between two halves of their CPU.
func CPUAndIO(load float64) Scenario {
	s := Step(load)
	s.Name = "cpu-io"
	half := Dist{Exp: 5 * time.Millisecond}
	s.Classes[0].Stages = []Stage{
		{CPU: half, Wait: Dist{Fixed: 50 * time.Millisecond, Exp: 50 * time.Millisecond}}, {CPU: half},
	}
	s.Client.Useful = 500 * time.Millisecond
	return s
}

// SlowDependency is three minutes at half the capacity. In the second minute the wait on a dependency rises from 50 to
// 500 ms while the CPU is idle. Answers after 900 ms are worthless.
func SlowDependency() Scenario {
	s := service("slow-dependency", Phase{For: time.Minute, Load: 0.5}, Phase{For: time.Minute, Load: 0.5, Measured: true},
		Phase{For: time.Minute, Load: 0.5})
	s.Classes[0].Stages = []Stage{{CPU: Dist{Exp: 10 * time.Millisecond}, Wait: Dist{Fixed: 50 * time.Millisecond}}}
	s.Client.Useful = 900 * time.Millisecond
	s.Events = []Event{
		{At: time.Minute, Slower: 450 * time.Millisecond}, {At: 2 * time.Minute, Slower: -450 * time.Millisecond},
	}
	return s
}

// Pool is a step for a pool of 8 connections, each used for 25 ms, behind a CPU that is all but idle.
func Pool(load float64) Scenario {
	s := Step(load)
	s.Name = "pool"
	s.Machine.Pools = map[string]int{"db": 8}
	s.Classes[0].Stages = []Stage{
		{CPU: Dist{Fixed: 200 * time.Microsecond}}, {Wait: Dist{Fixed: 25 * time.Millisecond}, During: "db"},
	}
	return s
}

// Lock is a step for three requests in ten that hold one lock for 5 ms: the lock is used up when the CPU is at 40 %.
func Lock(load float64) Scenario {
	s := Step(load)
	s.Name = "lock"
	s.Machine.Pools = map[string]int{"lock": 1}
	cpu := Stage{CPU: Dist{Exp: 1200 * time.Microsecond}}
	s.Classes = []Class{
		{Name: "free", Share: 7, Stages: []Stage{cpu}},
		{Name: "locked", Share: 3, Stages: []Stage{cpu, {Wait: Dist{Fixed: 5 * time.Millisecond}, During: "lock"}}},
	}
	return s
}

// Neighbour is a load of 0.8 while for the second of three minutes a neighbour takes half of each core.
func Neighbour() Scenario {
	s := service("neighbour", Phase{For: time.Minute, Load: 0.8}, Phase{For: time.Minute, Load: 0.8, Measured: true},
		Phase{For: time.Minute, Load: 0.8})
	s.Events = []Event{{At: time.Minute, Speed: 0.5}, {At: 2 * time.Minute, Speed: 1}}
	return s
}

// Pauses is a load of 0.6 with a pause of 60 ms every second, as of a garbage collector in distress.
func Pauses() Scenario {
	s := service("pauses", Phase{For: 5 * time.Minute, Load: 0.6, Measured: true})
	s.Events = []Event{{At: time.Second, Every: time.Second, Pause: 60 * time.Millisecond}}
	return s
}

// RetryStorm triggers a metastable failure: five seconds at 3 times the capacity, then 0.8, with clients that retry up
// to three times.
func RetryStorm() Scenario {
	s := service("retry-storm", Phase{For: 30 * time.Second, Load: 0.8}, Phase{For: 5 * time.Second, Load: 3, Measured: true},
		Phase{For: time.Minute, Load: 0.8})
	s.Client.Retries = 3
	return s
}

// Priorities is a step in which one request in ten is critical, three normal, and six may be shed.
func Priorities(load float64) Scenario {
	s := Step(load)
	s.Name = "priorities"
	work := []Stage{{CPU: Dist{Exp: 10 * time.Millisecond}}}
	s.Classes = []Class{
		{Name: "critical", Share: 1, Priority: 4, Stages: work},
		{Name: "normal", Share: 3, Stages: work},
		{Name: "sheddable", Share: 6, Priority: -4, Stages: work},
	}
	return s
}

// IdleThenStep is a minute of silence and a step.
func IdleThenStep(load float64) Scenario {
	s := service("idle-step", Phase{For: 10 * time.Second, Load: 0.5}, Phase{For: time.Minute},
		Phase{For: 30 * time.Second, Load: load, Measured: true})
	return s
}

// Library returns the scenarios, each with a unique name; load is the load of those that step.
func Library(load float64) []Scenario {
	return []Scenario{
		Step(load), StepSolid(load), StepQuota(load), Ramp(), Bursts(), Steady(load), named("steady-70", Steady(0.7)),
		named("steady-90", Steady(0.9)), named("steady-95", Steady(0.95)), Bimodal(load), CPUAndIO(load),
		SlowDependency(), FailingDependency(), Pool(load), Lock(load), Neighbour(), QuotaCut(), Pauses(), RetryStorm(), Priorities(load),
		CriticalFlood(load), NoisyTenant(), Jobs(load), ColdStart(), IdleThenStep(load), Impatient(load), ClockJump(load), Blind(load),
		ServerStep(load, 0), ServerRamp(load, 0), ServerDependency(0), SlowHost(RoundRobin),
	}
}

func named(name string, s Scenario) Scenario {
	s.Name = name
	return s
}
