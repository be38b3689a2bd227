// Package deadline tells whether a request can still finish before its deadline, from how long others like it took.
//
//	latencies, err := deadline.New(nil)
//	...
//	if latencies.TooLate(route, now, deadline) {
//		// refuse: fewer than one in twenty would make it
//	}
//	...
//	latencies.Observe(route, took, now) // when it has finished
//
// Per key, such as a route or a method, an Estimator follows the latency that one request in twenty stays under. A low
// quantile, because a refusal has to be nearly certain to be right: who has less time left than the fastest of the
// others took would only burn what somebody else could use. What would probably not finish, but may, is let through.
//
// A refused request teaches nothing, so that an estimate which refuses everything would stand forever. Hence the probes:
// now and then a request that is too late is let through all the same, so seldom that probes hold less than a quarter of
// a place at a time for latencies up to 250 ms, and once a second beyond. A service that became ten times faster is
// known again after 24 of them.
//
// An Estimator also learns the least budget of a key: the time in which nine of ten of its requests finish. A missed deadline
// that was shorter says nothing about the service.
package deadline
