package adaptive

import (
	"math"
	"time"

	"github.com/spillway-go/spillway/internal/splitmix"
)

// Vegas is an [Estimator] that estimates the number of queued requests from the least latency. The limit grows while
// the queue is short and shrinks while it is long, after TCP Vegas (Brakmo and Peterson, 1995) and Netflix's limit of
// that name. From time to time it learns the least latency again. A dropped request shrinks the limit, and its latency
// does not count. The zero Vegas is ready to use; it belongs to one [Limit].
type Vegas struct {
	// Seed makes instances learn again at different times, so that the instances of one service do not probe together.
	Seed uint64

	least   time.Duration // latency without load, 0 if unknown
	samples int           // since it was learned anew
	epochs  uint64        // how often it was
}

const (
	vegasAlpha = 3  // times log10 of the limit: a shorter queue lets the limit rise
	vegasBeta  = 6  // times log10 of the limit: a longer queue lets the limit fall
	vegasProbe = 30 // times the limit: samples until the least latency is learned anew; jitter cuts this by up to half
)

// Step returns the limit after one more sample.
func (v *Vegas) Step(limit float64, s Sample) float64 {
	*v, limit = stepVegas(*v, limit, s)
	return limit
}

// Baseline returns the least latency.
func (v *Vegas) Baseline() time.Duration { return v.least }

// stepVegas returns v and the limit after one sample.
func stepVegas(v Vegas, limit float64, s Sample) (Vegas, float64) {
	unit := math.Max(1, math.Floor(math.Log10(limit)))
	if s.Dropped {
		return v, limit - unit
	}
	v.samples++
	if float64(v.samples) >= v.jitter()*vegasProbe*limit {
		v.samples, v.least = 0, s.capped(s.Latency)
		v.epochs++
		return v, limit
	}
	if v.least == 0 || s.Latency < v.least {
		v.least = s.capped(s.Latency)
		return v, limit
	}
	v.least = s.capped(v.least)
	queue := math.Ceil(limit * (1 - float64(v.least)/float64(max(s.Latency, 1))))
	switch {
	case float64(2*s.InFlight) < limit: // the limit was not tried
	case queue <= unit:
		limit += vegasBeta * unit
	case queue < vegasAlpha*unit:
		limit += unit
	case queue > vegasBeta*unit:
		limit -= unit
	}
	return v, limit
}

// jitter returns a number in [0.5, 1) that depends on Seed and changes each time the least latency is learned again.
func (v *Vegas) jitter() float64 {
	x := splitmix.Mix(v.Seed*splitmix.Gamma + v.epochs*0xD1342543DE82EF95 + 1)
	return 0.5 + float64(x>>11)/(1<<54)
}
