// Package sim drives real policies through overload in virtual time. Hours of load take seconds, and the same seed gives
// the same figures, bit for bit.
//
//	result, err := sim.Run(sim.Named("step", 10), 1, func(h *sim.Host) (*spillway.Gate, error) {
//		shed, err := shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched()})
//		return spillway.New(shed), err
//	})
//	fmt.Println(result.Goodput, result.P99)
//
// A [Scenario] describes the service and its load. [Run] plays it on a [Host] behind the gate of your choice and
// returns a [Result]. The policies are not simulated. They are the ones that run in production, which is possible
// because no policy reads the clock.
//
// # The model
//
// A host has cores that take runnable goroutines in turn from one queue, a quantum each. As in Go, a request first
// needs CPU to be parsed, in that queue and before any policy sees it. Then it enters the gate. A refusal costs CPU; an
// admitted request goes through its stages of CPU, waits and pool slots, and may fail in any of them. A client that
// gives up leaves, but its request continues. A CPU quota, pauses of the garbage collector and a neighbour take the
// cores away. The host's sensors are real ones of package stats, fed with the counters of the model. Several hosts
// stand behind a balancer.
//
// A gate whose policies queue blocks a goroutine per waiting request, in a bubble of testing/synctest: see
// [Scenario.Settle].
//
// Requests come at random at given rates, or exactly as a recorded trace says: see [Replay].
//
// What it leaves out: the network, several hops through the scheduler for one request, and caches. docs/simulating.md
// says more, and compares it with a real server.
package sim
