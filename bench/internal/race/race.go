// Package race says whether the race detector is on. It allocates memory of its own, so tests count no allocations then.
package race
