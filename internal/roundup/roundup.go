// Package roundup rounds waits up to a few steps and keeps one value per step. So a refusal with a time to retry is
// built once and shared by all requests with that time.
//
//	cell, told := steps.At(wait) // steps is a roundup.Steps[spillway.Rejection]
//	if cell.Load() == nil {
//		cell.CompareAndSwap(nil, build(told))
//	}
//	return cell.Load()
//
// Waits are rounded up. The first step is Tick, and a step is at most 1/16 above the wait.
package roundup

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// Tick is the shortest wait that is told, and the step between short ones. There are exactly 512 in a second.
	Tick = time.Second / 512
	// Count is how many different waits are told at most.
	Count = rows * fine

	fine  = 16 // steps per doubling
	rows  = 64 - 4
	shift = 4 // log2(fine)
)

// Steps hold a value for each wait that is told. The zero Steps holds none, and takes 500 bytes; each doubling of the waits that
// are asked for takes 128 more. All methods may be called concurrently.
type Steps[T any] struct {
	rows [rows]atomic.Pointer[[fine]atomic.Pointer[T]]
}

// At returns what is told instead of a wait, which must not be negative, and the place of its value. Of a wait of more than 146
// years that is told.
func (s *Steps[T]) At(wait time.Duration) (cell *atomic.Pointer[T], told time.Duration) {
	row, col, told := step(min(wait, 1<<62))
	cells := s.rows[row].Load()
	if cells == nil {
		cells = new([fine]atomic.Pointer[T])
		if !s.rows[row].CompareAndSwap(nil, cells) {
			cells = s.rows[row].Load()
		}
	}
	return &cells[col], told
}

// step rounds wait up. Below fine ticks a step is one tick; from there on, a row has fine steps and is twice as wide as the
// row before.
func step(wait time.Duration) (row, col int, told time.Duration) {
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
