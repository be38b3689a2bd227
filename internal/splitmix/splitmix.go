// Package splitmix turns consecutive numbers into numbers that look random, by SplitMix64 (Steele, Lea and Flood, "Fast
// Splittable Pseudorandom Number Generators", 2014).
//
//	n := splitmix.Mix(state.Add(splitmix.Gamma)) // the next of a sequence, with one atomic addition
//	draw := splitmix.Mix(uint64(now.UnixNano())) // a draw that depends on the time alone, with no state at all
//
// It is not for secrets: one number reveals the next.
package splitmix

// Gamma is the increment of the state of a sequence: 2^64 divided by the golden ratio.
const Gamma = 0x9e3779b97f4a7c15

// Mix is the finalizer of SplitMix64. It is a one-to-one mapping, and maps 0 to 0. If one bit of x changes, about half
// of the bits of the result change.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Hash returns a hash of key that depends on seed. It is the same in all processes and versions. Keys that collide for
// one seed are easy to make, and do not collide for others: where strangers choose keys, keep the seed secret.
func Hash(key string, seed uint64) uint64 {
	h := (seed + uint64(len(key))<<32) * Gamma
	for len(key) >= 8 {
		h = Mix(h ^ (uint64(key[0]) | uint64(key[1])<<8 | uint64(key[2])<<16 | uint64(key[3])<<24 |
			uint64(key[4])<<32 | uint64(key[5])<<40 | uint64(key[6])<<48 | uint64(key[7])<<56))
		key = key[8:]
	}
	var tail uint64
	for i := range len(key) {
		tail |= uint64(key[i]) << (8 * i)
	}
	return Mix(h ^ tail ^ Gamma)
}
