// Package peers puts the adaptive admission controls of other libraries into one shape, so that the same load can be sent
// to each of them: by a real server ([Guards]) or in virtual time ([Policy]).
//
//	os.Exit(overload.Main(overload.Config{Guards: peers.Guards()}))
//
// Each peer is shown at its best. Those that go by the CPU get a true reading of what the process uses of what it may use, by
// the sensor that Spillway itself uses, unsmoothed and refreshed by the requests themselves. Under names with "smooth" they
// get it smoothed as much as they smooth theirs, under names with "stock" they read for themselves. Logs are off.
// Gradient2 and Vegas are written anew after Netflix' concurrency-limits, because no Go module of them can be had.
package peers
