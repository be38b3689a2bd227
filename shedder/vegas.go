package shedder

import (
	"math"
	"time"

	"github.com/spillway-go/spillway/internal/splitmix"
)

// Vegas is an [Estimator] that guesses from the least latency seen how many requests queue, and lets the limit grow while
// few do and shrink while many do, after TCP Vegas (Brakmo and Peterson, 1995) and Netflix' limit of that name. It forgets
// the least latency now and then; if that happens in an overload, it takes the overload for normal. The zero Vegas is
// ready; one belongs to one [LatencyLimit].
type Vegas struct {
	// Seed makes instances forget at different times, so that those of one service do not probe together.
	Seed uint64

	least   time.Duration // latency without load, 0 if unknown
	samples int           // since the least latency was forgotten
	epochs  uint64        // how often it was forgotten
}

const (
	vegasAlpha = 3  // times log10 of the limit: fewer in the queue than this let the limit rise
	vegasBeta  = 6  // times log10 of the limit: more in the queue than this let it fall
	vegasProbe = 30 // times the limit: samples until the least latency is learned anew, or half as many
)

// Step returns the limit after one more sample.
func (v *Vegas) Step(limit float64, s Sample) float64 {
	*v, limit = stepVegas(*v, limit, s)
	return limit
}

// stepVegas returns v and the limit after one sample.
func stepVegas(v Vegas, limit float64, s Sample) (Vegas, float64) {
	v.samples++
	if float64(v.samples) >= v.jitter()*vegasProbe*limit {
		v.samples, v.least = 0, s.Latency
		v.epochs++
		return v, limit
	}
	if v.least == 0 || s.Latency < v.least {
		v.least = s.Latency
		return v, limit
	}
	unit := math.Max(1, math.Floor(math.Log10(limit)))
	queue := math.Ceil(limit * (1 - float64(v.least)/float64(max(s.Latency, 1))))
	switch {
	case s.Dropped:
		limit -= unit
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

// jitter returns a number in [0.5, 1) that depends on Seed and changes each time the least latency is forgotten.
func (v *Vegas) jitter() float64 {
	x := splitmix.Mix(v.Seed*splitmix.Gamma + v.epochs*0xD1342543DE82EF95 + 1)
	return 0.5 + float64(x>>11)/(1<<54)
}
