// Package overload measures how much useful work a real server does under far more load than it can handle.
//
//	func main() {
//		os.Exit(overload.Main(overload.Config{
//			Guards: []overload.Guard{{Name: "mine", Wrap: wrap}},
//		}))
//	}
//
// The server is the same program started a second time, with GOMAXPROCS=1. It is a net/http server, or the server of
// another [Transport], and burns a counted amount of CPU for each request. Where the machine allows it, that process
// gets its own control group with a CPU quota, so that server and clients do not compete for the cores. It ends when
// its parent does, and all traffic stays on the loopback device.
//
// # The clients
//
// They form an open loop, like the users of a service. Send times are drawn beforehand from a Poisson process, and no
// client waits for another client's answer. Latency counts from the intended send time, so a generator that falls
// behind cannot flatter the server; its delay is part of the result. Unless the [Work] says otherwise, a client gives
// up after a second, and an answer that takes longer than half a second is worthless. A client of net/http that gives
// up closes its connection.
//
// # The run
//
// First the capacity of the bare server is measured with clients in a closed loop, or taken from the [Work]. Then each
// guard gets a new server and all loads in order, as multiples of that capacity. Each step up begins from half the
// capacity. A server that does not recover there is replaced, so that one load does not spoil the next, and the result
// says so. The step down to a last light load is never helped in this way.
//
// The server reports its figures ten times a second over a pipe, because an overloaded server could not answer
// questions.
//
// The package serves the examples and benchmarks of this repository. Its names may change at any time.
package overload
