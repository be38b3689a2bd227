package shedder

import "time"

// Gradient2 is an [Estimator] that compares the latency with a long mean of it: while requests take no more than
// Tolerance times as long as usual, the limit grows by a few; when they take longer, it shrinks in proportion. It is
// Netflix' limit of that name (concurrency-limits). It forgives a slow drift, and so takes a lasting overload for normal
// in the end. The zero Gradient2 is ready; one belongs to one [LatencyLimit].
type Gradient2 struct {
	// Tolerance is how many times as long as usual is still normal, at least 1. If Tolerance is 0, it is 1.5.
	Tolerance float64

	long float64 // long mean of the latency, in seconds
	seen int     // samples in it, up to gradient2Warm
}

const (
	gradient2Tolerance = 1.5
	gradient2Queue     = 4 // room for requests that wait
	gradient2Smoothing = 0.2
	gradient2Window    = 600 // samples that the long mean remembers
	gradient2Warm      = 10  // samples of which it is the plain mean
	gradient2Decay     = 0.95
)

// Step returns the limit after one more sample.
func (g *Gradient2) Step(limit float64, s Sample) float64 {
	*g, limit = stepGradient2(*g, limit, s)
	return limit
}

// stepGradient2 returns g and the limit after one sample.
func stepGradient2(g Gradient2, limit float64, s Sample) (Gradient2, float64) {
	short := max(s.Latency, time.Microsecond).Seconds()
	if g.seen < gradient2Warm {
		g.seen++
		g.long += (short - g.long) / float64(g.seen)
	} else {
		g.long += (short - g.long) * 2 / (gradient2Window + 1)
	}
	if g.long > 2*short { // the mean remembers an overload that is over
		g.long *= gradient2Decay
	}
	if float64(s.InFlight) < limit/2 { // the limit was not what held requests back, so it was not tried either
		return g, limit
	}
	tolerance := g.Tolerance
	if tolerance == 0 {
		tolerance = gradient2Tolerance
	}
	gradient := min(max(tolerance*g.long/short, 0.5), 1)
	wanted := limit*gradient + gradient2Queue
	return g, limit*(1-gradient2Smoothing) + wanted*gradient2Smoothing
}
