// Package peers puts the adaptive admission controls of other libraries into one shape, so that each can get the same
// load. The load is that of a real server ([Guards]) or of one in virtual time ([Policy]).
//
//	os.Exit(overload.Main(overload.Config{Guards: peers.Guards()}))
//
// Each peer is shown at its best. Peers that use the CPU get a true reading of the process's usage as a share of its
// quota. The reading comes from Spillway's own sensor, unsmoothed, and requests refresh it. Under names with "smooth"
// it is smoothed as much as they smooth theirs. Under names with "stock" they read for themselves. Logs are off.
// Gradient2 and Vegas are reimplementations of Netflix's concurrency-limits, which has no Go module.
package peers
