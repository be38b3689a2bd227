//go:build race

package deadline

// raceEnabled tells that the race detector adds allocations of its own.
const raceEnabled = true
