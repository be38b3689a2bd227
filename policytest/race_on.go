//go:build race

package policytest

// raceEnabled tells that the race detector is on, which allocates on its own account.
const raceEnabled = true
