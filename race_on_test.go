//go:build race

package spillway_test

// raceEnabled tells that the race detector is on, which allocates on its own account.
const raceEnabled = true
