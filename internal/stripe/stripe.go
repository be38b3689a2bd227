// Package stripe spreads writers over copies of a counter, so that cores do not contend for one cache line.
//
// A caller finds its stripe once and uses it for every counter that it touches:
//
//	cells := make([]cell, stripe.Count()) // cell holds several counters and is padded to stripe.Size
//	c := &cells[stripe.Index(len(cells))]
//	c.admitted.Add(1)
//
// A Go program cannot find out cheaply which core it runs on, so the stripe follows the goroutine: its number is a hash
// of the address of the goroutine's stack. That costs about one nanosecond and needs no shared state. It stays the
// same from one call to the next for nearly every goroutine, which keeps the stripe in that core's cache. By comparison,
// a token kept in a sync.Pool doubles the cost of an add. A random stripe is slower than a single shared counter as soon
// as two cores run.
package stripe

import (
	"runtime"
	"unsafe"
)

// Size is the distance in bytes that keeps two stripes apart: two cache lines, because processors fetch lines in pairs.
const Size = 128

// maxCount bounds the memory of a striped counter on large machines.
const maxCount = 32

// Count returns the right number of stripes for this process: a power of two, at least twice GOMAXPROCS so that two running
// goroutines seldom meet, at most 32, and 1 where GOMAXPROCS is 1. It takes a lock of the scheduler: call it when something
// is built, not per operation.
func Count() int {
	return countFor(runtime.GOMAXPROCS(0))
}

// Wide returns the number of stripes of a counter that every request writes: four times Count, at most 64, and 1 if
// GOMAXPROCS is 1. So two running goroutines hardly ever meet. A write to a shared stripe costs ten times as much.
func Wide() int {
	if n := Count(); n > 1 {
		return min(4*n, 2*maxCount)
	}
	return 1
}

func countFor(procs int) int {
	if procs <= 1 {
		return 1
	}
	n := 4
	for n < 2*procs && n < maxCount {
		n *= 2
	}
	return n
}

// Index returns the stripe of the calling goroutine, in [0, n). n must be a power of two. Two goroutines may share a
// stripe, and a goroutine may change its stripe when its stack grows or spans more than 2 KiB, so a stripe is only a
// hint for speed. Update its fields atomically, and expect that an addition on one stripe may be undone on another.
func Index(n int) int {
	var here byte
	// The smallest stack is 2 KiB, so the address above its 11 lowest bits names the stack rather than the depth of the
	// call. The pointer is used as a number only. The multiplier is 2^64 divided by the golden ratio: it spreads
	// addresses that differ by a constant step, as stacks do.
	h := uint64(uintptr(unsafe.Pointer(&here))>>11) * 0x9E3779B97F4A7C15
	return int(h>>32) & (n - 1)
}
