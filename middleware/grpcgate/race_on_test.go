//go:build race

package grpcgate_test

// raceEnabled tells that the race detector is on, which allocates on its own account.
const raceEnabled = true
