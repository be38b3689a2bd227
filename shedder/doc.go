// Package shedder refuses requests that a service cannot handle, so that it keeps doing useful work in an overload.
//
//	shed, err := shedder.New(nil) // needs no configuration, no goroutine and no Close
//	if err != nil {
//		return err
//	}
//	guard := httpgate.Handler(spillway.New(shed), nil)
//	return http.ListenAndServe(addr, guard(mux))
//
// A [Shedder] is a [spillway.Policy]. It limits the requests in flight. Three principles set the limit:
//
//   - By Little's law, a service that answers rate requests per second, and takes T seconds for each, has rate × T
//     requests in flight. The Shedder learns both, and this limit always holds.
//   - While the CPU is short, a tighter limit holds: in flight <= pass × rt + room. Here pass is the highest rate of
//     answers over one latency, rt the typical latency of the calm service, and room keeps the CPU full. While goroutines
//     keep waiting for a processor, a random share of the requests is refused too.
//   - The typical latency rises only on proof. Missing answers, or a tighter limit that costs answers, prove that a
//     dependency is slow. A queue that grows in order, with steady answers none of which comes too soon, proves that a
//     pool is full.
//
// [Options.SLO] is the one knob that matters: it bounds how long admitted requests take, even before anything is
// learnt. docs/algorithms.md explains the law, its constants and its weaknesses.
//
// # CPU shortage
//
// The CPU is short while the usage, raw or smoothed, reaches [Options.CPUThreshold], or while goroutines wait long for
// a processor. The tighter limit holds for [Options.CoolDown] after the last overload. [Options.Signals] adds signs of
// your own. If a sensor cannot be read, panics, or repeats a sample for 3 s, the Shedder uses the others, and [Stats]
// says so.
//
// # Priorities
//
// Under overload, requests of a high [spillway.Priority] are served first, and each priority uses all that the higher
// ones leave. Among requests of one priority, each [spillway.Request.Key] gets at least its max-min fair share: a
// tenant that sends most of the requests does not hurt the others. All services refuse the same light keys, in an order
// that changes every [Options.Rotation]. With [Options.FairRoutes], each [spillway.Request.Route] gets at least its max-min
// fair share of the busy time, so that cheap requests are not refused because expensive ones ask for too much.
// docs/priorities.md helps to choose priorities and keys.
//
// # Queue
//
// By default, no request waits. With [Options.MaxQueue], requests that find no room wait for a short time, which helps in
// bursts. The highest priority goes first, and keys of one priority take turns. docs/queues.md says when to use it.
//
// # Learning
//
// Rates are learnt at any time, from answers and failures. The typical latency is learnt from successes, and only while
// nothing is refused: a limit that learnt its latency in an overload would keep the overload going.
package shedder
