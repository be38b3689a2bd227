package stats

import (
	"fmt"
	"math"
	"sync/atomic"
)

// unset is stored xor-ed into every value, so that the zero word reads as NaN: a mean without a sample.
const unset = 0x7FF8000000000001

// An EWMA is an exponentially weighted moving average: each Update sets it to beta × old + (1 − beta) × sample. The
// first sample seeds it, so it does not have to climb from 0.
//
// After a step, the distance to the new level shrinks by beta with every sample. With beta 0.95 and a sample every 250
// ms, the mean after a step from 0 to 1 passes 0.9 after 45 samples, or 11.25 s.
//
// The zero EWMA has beta 0: it holds the last sample. An EWMA must not be copied after its first use. Methods may be
// called concurrently; concurrent updates are applied one after the other, in some order.
type EWMA struct {
	beta float64
	bits atomic.Uint64 // of the mean, xor unset
}

// NewEWMA returns an EWMA that gives the old mean the weight beta, at least 0 and less than 1.
func NewEWMA(beta float64) (*EWMA, error) {
	if !(beta >= 0 && beta < 1) { // written so that NaN fails
		return nil, fmt.Errorf("stats: EWMA: beta must be at least 0 and less than 1, got %v", beta)
	}
	return &EWMA{beta: beta}, nil
}

// Update moves the mean towards x and returns it. A NaN or infinite x is ignored.
func (e *EWMA) Update(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return e.Value()
	}
	for {
		word := e.bits.Load()
		mean := x
		if old := math.Float64frombits(word ^ unset); !math.IsNaN(old) {
			mean = e.blend(old, x)
		}
		if e.bits.CompareAndSwap(word, math.Float64bits(mean)^unset) {
			return mean
		}
	}
}

// Value returns the mean, or 0 before the first sample. It is never NaN or infinite.
func (e *EWMA) Value() float64 {
	if mean := math.Float64frombits(e.bits.Load() ^ unset); !math.IsNaN(mean) {
		return mean
	}
	return 0
}

func (e *EWMA) blend(old, x float64) float64 {
	// The conversions forbid fused multiply-add, so that every processor gets the same mean. The bounds undo rounding:
	// a constant input stays exactly the same, and huge inputs do not overflow.
	mean := float64(e.beta*old) + float64((1-e.beta)*x)
	return max(min(old, x), min(mean, max(old, x)))
}
