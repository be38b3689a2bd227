// Package law is the control law of the shedder: pure, with time and readings as arguments, no clock and no lock.
//
//	l := law.New(law.Default())
//	l.Tune(options)
//	verdict := l.Step(&reading) // every 20 ms
//
// A flow bounds the requests in flight by Little's law at any CPU usage, and a cpu tightens that bound while the CPU is
// short. A latency learns how long requests take while the service is calm. docs/algorithms.md explains the law on one
// page.
package law
