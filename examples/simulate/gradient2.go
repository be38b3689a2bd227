package main

import "time"

// gradient2 is the state of the limit that follows the ratio of a long mean of the latency to what it is now, after
// Netflix' Gradient2.
type gradient2 struct {
	limit float64
	long  float64 // long mean of the latency, in seconds
	seen  int     // samples in it
}

const (
	gradient2Min       = 20
	gradient2Max       = 200
	gradient2Tolerance = 1.5 // how much longer than the long mean is still normal
	gradient2Queue     = 4   // room for requests that wait
	gradient2Smoothing = 0.2
	gradient2Window    = 600 // samples that the long mean remembers
	gradient2Warm      = 10  // samples of which it is the plain mean
	gradient2Decay     = 0.95
)

// stepGradient2 returns g after one sample.
func stepGradient2(g gradient2, x sample) gradient2 {
	short := max(x.latency, time.Microsecond).Seconds()
	g.seen++
	if g.seen <= gradient2Warm {
		g.long += (short - g.long) / float64(g.seen)
	} else {
		g.long += (short - g.long) * 2 / (gradient2Window + 1)
	}
	if g.long > 2*short { // the mean remembers an overload that is over
		g.long *= gradient2Decay
	}
	if float64(x.inFlight) < g.limit/2 { // the limit was not what held requests back, so it was not tried either
		return g
	}
	gradient := min(max(gradient2Tolerance*g.long/short, 0.5), 1)
	wanted := g.limit*gradient + gradient2Queue
	g.limit = min(max(g.limit*(1-gradient2Smoothing)+wanted*gradient2Smoothing, gradient2Min), gradient2Max)
	return g
}
