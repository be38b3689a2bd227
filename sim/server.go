package sim

import "time"

// server is the service that examples/simulate/real measures: 2 ms of CPU for a request, one processor and a quota of
// 0.4 CPUs. Clients leave after a second, and an answer is useful within half a second.
func server(name string, phases ...Phase) Scenario {
	return Scenario{
		Name:    name,
		Machine: Machine{Cores: 1, Quota: 0.4, Parse: 25 * time.Microsecond},
		Classes: []Class{{Name: "all", Share: 1, Stages: []Stage{{CPU: Dist{Fixed: 2 * time.Millisecond}}}}},
		Client:  Client{Useful: 500 * time.Millisecond, Deadline: time.Second},
		Phases:  phases,
	}
}

// serverStep is a step of ten seconds to load for a small server with a CPU quota, like the real server that was
// measured.
func serverStep(load float64) Scenario {
	return server("server-step", Phase{For: 2 * time.Second, Load: 0.5},
		Phase{For: 10 * time.Second, Load: load, Measured: true})
}

// serverRamp is serverStep with a load that rises evenly from 0.5.
func serverRamp(load float64) Scenario {
	return server("server-ramp", Phase{For: 2 * time.Second, Load: 0.5},
		Phase{For: 10 * time.Second, Load: 0.5, To: load, Ramp: true, Measured: true})
}

// serverDependency is the server of serverStep at half its capacity. A dependency answers after 50 ms, and after 350
// ms for five seconds.
func serverDependency() Scenario {
	s := server("server-dependency", Phase{For: 10 * time.Second, Load: 0.5, Measured: true})
	s.Classes[0].Stages[0].Wait = Dist{Fixed: 50 * time.Millisecond}
	s.Events = []Event{
		{At: 4 * time.Second, Slower: 300 * time.Millisecond}, {At: 9 * time.Second, Slower: -300 * time.Millisecond},
	}
	return s
}
