package grpcgate

import (
	"math/rand/v2"
	"slices"
	"time"
)

// The delays that refusals carry, in ms: each up to 20 ms, then 5 % apart, up to a day. They are few, so that
// the answer with each can be prepared once, and never modified.
var delaySteps = makeDelaySteps() //nolint:gochecknoglobals // a table: made once, never changed

const (
	leastDelay   = 10                  // ms
	mostPrepared = 24 * 60 * 60 * 1000 // ms

	// The delay of a refusal without a known RetryAfter, and the width of its random spread.
	unknownDelay  = time.Second
	unknownSpread = 2 * time.Second
	mostSpread    = 6 * time.Hour
)

func makeDelaySteps() (steps []int64) {
	for ms := int64(leastDelay); ms < mostPrepared; ms += max(ms/20, 1) {
		steps = append(steps, ms)
	}
	return append(steps, mostPrepared)
}

// spreadDelay returns a delay not earlier than d, spread at random over a quarter of d, so that clients do not come
// back together. If d is 0 (unknown), the delay is from 1 to 3 s.
func spreadDelay(d time.Duration) time.Duration {
	return delayAt(d, rand.Float64())
}

// delayAt returns the delay at a position in [0, 1) of the spread.
func delayAt(d time.Duration, position float64) time.Duration {
	if d <= 0 {
		return unknownDelay + time.Duration(position*float64(unknownSpread))
	}
	return satAdd(d, time.Duration(position*float64(min(d/4, mostSpread))))
}

func satAdd(a, b time.Duration) time.Duration {
	if sum := a + b; sum >= a {
		return sum
	}
	return a
}

// delayStep returns the index of the shortest of delaySteps that is at least d, or false if d is longer than all.
func delayStep(d time.Duration) (int, bool) {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	i, _ := slices.BinarySearch(delaySteps, ms)
	return i, i < len(delaySteps)
}
