// Package race says whether the race detector is on. The detector itself allocates memory, so tests do not count
// allocations while it is on.
package race
