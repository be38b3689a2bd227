// Package stats measures: counters, windows of time, moving averages and quantiles for events, and sensors of the CPU, memory
// and their queues.
//
//	latency, err := stats.NewWindow(5*time.Second, 50)
//	...
//	latency.Add(now, int64(took))
//	...
//	for b := range latency.Complete(now) {
//		fmt.Println(b.Start, b.Count, time.Duration(b.Sum/max(b.Count, 1)))
//	}
//
// A Counter adds up, a Window keeps the last seconds in buckets, an EWMA smooths, and a Histogram estimates quantiles of
// the last seconds. None of them reads a clock or starts a goroutine: the time comes as an argument, from any clock,
// real or simulated. All may be used concurrently, and recording does not lock.
//
// A [Sensor] publishes samples of the CPU, the scheduler, memory, the garbage collector or the pressure on a resource.
//
// # The feed
//
// Every part of Spillway that counts something is a [Source] of metrics. A Gate yields its own and those of the policies
// that it asks, so a program names its gates once, and hands that map to an exporter:
//
//	sources := map[string]stats.Source{"api": gate, "checkout-db": breaker}
//	prometheus.MustRegister(prom.New(sources))     // telemetry/prom
//	page := console.New(sources, nil)              // the live page
//
// Your own exporter is a loop:
//
//	for name, m := range stats.Each(sources) {
//		send(name, m.Name, m.Labels, m.Value)
//	}
//
// Reading the feed takes snapshots. It adds nothing to the cost of a request.
package stats
