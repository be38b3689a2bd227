// Package deadline estimates whether a request can still finish before its deadline, from the latency of similar
// requests.
//
//	latencies, err := deadline.New(nil)
//	...
//	if late, _, _ := latencies.Late(route, now, left); late {
//		// refuse: fewer than one in a hundred would make it
//	}
//	...
//	latencies.Observe(route, took, now) // when it has finished
//
// An Estimator follows, per key such as a route or a method, the latency that one request in a hundred stays under. The
// quantile is low because a refusal has to be nearly certain to be right. A request with less time left would only take
// resources from others. A request that would probably not finish, but may, is admitted.
//
// A refused request teaches nothing, so an estimate that refuses every request would never change. Probes prevent that:
// now and then a late request is admitted all the same. Probes hold less than a quarter of a place at a time for
// latencies up to 250 ms; above that there is one per second. After 11 probes the estimate has found a service that
// became ten times faster. If no request is observed, not even a probe, an estimate that refuses halves every 10 s.
//
// A [Chance] follows the high quantile instead: the time in which 99 of 100 requests finish. A missed deadline that was
// shorter than this does not count against the service.
package deadline
