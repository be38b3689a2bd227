// Package sim drives real policies through overload in virtual time: hours of load in seconds, the same to the bit from
// the same seed.
//
//	result, err := sim.Run(sim.Step(10), 1, func(h *sim.Host) (*spillway.Gate, error) {
//		shed, err := shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched()})
//		return spillway.New(shed), err
//	})
//	fmt.Println(result.Goodput, result.P99)
//
// A [Scenario] says what the service is made of and what is asked of it; [Run] plays it on a [Host] behind the gate of
// your choice, and the [Result] says what became of it. The policies are not simulated: they are the ones that serve
// production, which can be because no policy reads the clock.
//
// # The model
//
// A host has cores that take runnable goroutines in turn, a quantum each, from one queue. A request first needs CPU to be
// parsed, in the queue before any policy sees it, as in Go; then it enters the gate; then it is refused at a price, or
// goes through its stages of CPU, waits and pool slots, in each of which it may fail. A client that gives up leaves, but its
// request goes on. A CPU quota, pauses of the garbage collector and a neighbour take the cores away. The host's sensors are
// real ones of package stats, fed with the counters of the model. Several hosts stand behind a balancer.
//
// Requests come at random at given rates, or exactly as a recorded trace says: see [Replay].
//
// What it leaves out: the network, several hops through the scheduler for one request, and caches. docs/simulating.md
// says more, and compares it with a real server.
package sim
