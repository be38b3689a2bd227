package overload

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A Shape is how a load arrives.
type Shape string

// The shapes.
const (
	Step  Shape = "step"  // all at once, and then the same to the end
	Ramp  Shape = "ramp"  // rising evenly from half the capacity
	Burst Shape = "burst" // for the first 0.3 s of every 1.5 s, and half the capacity between
	Storm Shape = "storm" // as Step, by clients that retry up to three times if they were refused or not answered
)

// Shapes returns all shapes.
func Shapes() []Shape { return []Shape{Step, Ramp, Burst, Storm} }

func (s Shape) check() error {
	switch s {
	case "", Step, Ramp, Burst, Storm:
		return nil
	}
	return fmt.Errorf("overload: -shape: no shape %q; there are %v", s, Shapes())
}

const (
	burstEvery = 1500 * time.Millisecond
	burstFor   = 300 * time.Millisecond
)

// loadAt returns the load at t in a stretch of the given load and length, as a multiple of the capacity.
func (s Shape) loadAt(t, d time.Duration, load float64) float64 {
	switch {
	case s == Ramp:
		return lightLoad + (load-lightLoad)*float64(t)/float64(d)
	case s == Burst && t%burstEvery >= burstFor:
		return lightLoad
	}
	return load
}

// arrivals draws the send times of one stretch: a Poisson process whose rate has the shape.
func (s Shape) arrivals(rng *rand.Rand, load, capacity float64, d time.Duration) []time.Duration {
	most := max(load, lightLoad)
	if s != Ramp && s != Burst {
		most = load
	}
	times := schedule(rng, most*capacity, d)
	if s != Ramp && s != Burst {
		return times
	}
	kept := times[:0]
	for _, t := range times {
		if rng.Float64()*most < s.loadAt(t, d, load) {
			kept = append(kept, t)
		}
	}
	return kept
}

// How the clients of a storm ask again.
const (
	stormTries   = 3 // times, after the first
	stormBackoff = 50 * time.Millisecond
	stormJitter  = 100 * time.Millisecond // mean of the exponential part added to it
)

// tries returns how often a client retries.
func (s Shape) tries() int {
	if s == Storm {
		return stormTries
	}
	return 0
}
