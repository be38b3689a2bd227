// Package roundup rounds waits up to a few steps and keeps one value per step. So a refusal with a time to retry is
// built once and shared by all requests with that time.
//
//	cell, rounded := steps.At(wait) // steps is a roundup.Steps[spillway.Rejection]
//	if cell.Load() == nil {
//		cell.CompareAndSwap(nil, build(rounded))
//	}
//	return cell.Load()
//
// Waits are rounded up. The shortest step is Tick, and the result is at most 1/16 above the wait.
package roundup

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// Tick is the shortest result, and the step between short ones. There are exactly 512 in a second.
	Tick = time.Second / 512
	// Count is the maximum number of different results.
	Count = rows * fine

	fine  = 16 // steps per doubling
	rows  = 64 - 4
	shift = 4 // log2(fine)
)

// Steps hold a value for each rounded wait. The zero Steps holds none, and takes 500 bytes; each doubling of the longest wait takes
// 128 more. All methods may be called concurrently.
type Steps[T any] struct {
	rows [rows]atomic.Pointer[[fine]atomic.Pointer[T]]
}

// At returns a wait rounded up, and the place of its value. A wait must not be negative; one of more than 146 years counts as 146
// years.
func (s *Steps[T]) At(wait time.Duration) (cell *atomic.Pointer[T], rounded time.Duration) {
	row, col, rounded := step(min(wait, 1<<62))
	cells := s.rows[row].Load()
	if cells == nil {
		cells = new([fine]atomic.Pointer[T])
		if !s.rows[row].CompareAndSwap(nil, cells) {
			cells = s.rows[row].Load()
		}
	}
	return &cells[col], rounded
}

// step rounds wait up. Below fine ticks a step is one tick; from there on, a row has fine steps and is twice as wide as the
// row before.
func step(wait time.Duration) (row, col int, rounded time.Duration) {
	q := max((uint64(wait)+uint64(Tick)-1)/uint64(Tick), 1)
	if q <= fine {
		return 0, int(q - 1), time.Duration(q) * Tick
	}
	// q is in (2^(e-1), 2^e] with e > shift; a step is 2^(e-1-shift) ticks wide.
	e := bits.Len64(q - 1)
	width := e - 1 - shift
	up := (q + 1<<width - 1) >> width // in (fine, 2*fine]
	return e - shift, int(up - fine - 1), time.Duration(up<<width) * Tick
}
