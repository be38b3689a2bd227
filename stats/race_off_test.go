//go:build !race

package stats

// raceEnabled is true where the race detector runs, which allocates on its own account.
const raceEnabled = false
