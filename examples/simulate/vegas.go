package main

import (
	"math"
	"time"
)

// vegas is the state of the limit that guesses how many requests queue from the least latency seen, after TCP Vegas and
// Netflix' limit of that name.
type vegas struct {
	limit   float64
	least   time.Duration // latency without load, 0 if unknown
	samples int           // since the least latency was forgotten
	jitter  float64       // in [0.5, 1): hosts forget at different times
}

const (
	vegasMax   = 1000
	vegasAlpha = 3  // times log10 of the limit: fewer in the queue than this let the limit rise
	vegasBeta  = 6  // times log10 of the limit: more in the queue than this let it fall
	vegasProbe = 30 // times the limit: samples until the least latency is learned anew
)

// stepVegas returns v after one sample. It takes jitter over when it forgets the least latency.
func stepVegas(v vegas, x sample, jitter float64) vegas {
	v.samples++
	if float64(v.samples) >= v.jitter*vegasProbe*v.limit {
		v.samples, v.least, v.jitter = 0, x.latency, jitter
		return v
	}
	if v.least == 0 || x.latency < v.least {
		v.least = x.latency
		return v
	}
	unit := math.Max(1, math.Floor(math.Log10(v.limit)))
	queue := math.Ceil(v.limit * (1 - float64(v.least)/float64(max(x.latency, 1))))
	switch {
	case x.dropped:
		v.limit -= unit
	case float64(2*x.inFlight) < v.limit: // the limit was not tried
	case queue <= unit:
		v.limit += vegasBeta * unit
	case queue < vegasAlpha*unit:
		v.limit += unit
	case queue > vegasBeta*unit:
		v.limit -= unit
	}
	v.limit = min(max(v.limit, 1), vegasMax)
	return v
}
