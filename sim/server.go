package sim

import "time"

// server is the service that examples/simulate/real measures: 2 ms of CPU for a request, one processor and a quota of
// 0.4 CPUs. Clients leave after a second, and an answer is useful within half a second. beside is the cost of an
// answered request beside its work: yields, timers and writing the answer come behind the gate, and all of it but parse
// is theirs.
func server(name string, beside time.Duration, phases ...Phase) Scenario {
	const parse = 25 * time.Microsecond
	cpu := 2*time.Millisecond + max(0, beside-parse)
	return Scenario{
		Name:    name,
		Machine: Machine{Cores: 1, Quota: 0.4, Parse: parse},
		Classes: []Class{{Name: "all", Share: 1, Stages: []Stage{{CPU: Dist{Fixed: cpu}}}}},
		Client:  Client{Useful: 500 * time.Millisecond, Deadline: time.Second},
		Phases:  phases,
	}
}

// ServerStep is a step of ten seconds to load for a small server with a CPU quota, like the real server that was
// measured. An answered request costs beside in addition to its 2 ms of CPU, at least 25 µs.
func ServerStep(load float64, beside time.Duration) Scenario {
	return server("server-step", beside, Phase{For: 2 * time.Second, Load: 0.5},
		Phase{For: 10 * time.Second, Load: load, Measured: true})
}

// ServerRamp is [ServerStep] with a load that rises evenly from 0.5.
func ServerRamp(load float64, beside time.Duration) Scenario {
	return server("server-ramp", beside, Phase{For: 2 * time.Second, Load: 0.5},
		Phase{For: 10 * time.Second, Load: 0.5, To: load, Ramp: true, Measured: true})
}

// ServerDependency is the server of [ServerStep] at half its capacity. A dependency answers after 50 ms, and after 350
// ms for five seconds.
func ServerDependency(beside time.Duration) Scenario {
	s := server("server-dependency", beside, Phase{For: 10 * time.Second, Load: 0.5, Measured: true})
	s.Classes[0].Stages[0].Wait = Dist{Fixed: 50 * time.Millisecond}
	s.Events = []Event{
		{At: 4 * time.Second, Slower: 300 * time.Millisecond}, {At: 9 * time.Second, Slower: -300 * time.Millisecond},
	}
	return s
}
