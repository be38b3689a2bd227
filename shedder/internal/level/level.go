package level

import "github.com/spillway-go/spillway/internal/splitmix"

// Classes is the number of classes that priorities are mapped to.
const Classes = 2*(exact+coarse) + 1

const (
	exact  = 12 // the priorities of at most this size have a class each
	coarse = 3  // classes for the greater ones, on each side
)

// Class returns the class of a priority. Classes keep the order of priorities; only beyond 12 and -12 does a class
// hold more than one.
func Class(priority int) int {
	if uint(priority+exact) <= 2*exact {
		return priority + exact + coarse
	}
	return beyond(priority)
}

func beyond(priority int) int {
	switch {
	case priority < -1023:
		return 0
	case priority < -31:
		return 1
	case priority < 0:
		return 2
	case priority <= 31:
		return Classes - 3
	case priority <= 1023:
		return Classes - 2
	}
	return Classes - 1
}

// Priority returns the priority of class that is nearest to 0.
func Priority(class int) int {
	switch class {
	case 0:
		return -1024
	case 1:
		return -32
	case Classes - 2:
		return 32
	case Classes - 1:
		return 1024
	}
	return class - exact - coarse
}

// Position returns the place of a key among all keys of a class, as a share of 2^64; keys with low positions are
// refused first. It is the same in all processes, and different for each rotation.
func Position(key string, rotation uint64) uint64 { return splitmix.Hash(key, rotation) }
