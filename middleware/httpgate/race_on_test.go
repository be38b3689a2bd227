//go:build race

package httpgate_test

// raceEnabled tells that the race detector adds allocations of its own.
const raceEnabled = true
