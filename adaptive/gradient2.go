package adaptive

import "time"

// Gradient2 is an [Estimator] that compares the latency with its long mean, after Netflix's limit of that name
// (concurrency-limits). While requests take at most Tolerance times as long as usual, the limit grows by a few. When
// they take longer, it shrinks in proportion. A dropped request counts as far too slow, and does not change the mean.
// The zero Gradient2 is ready to use; it belongs to one [Limit].
type Gradient2 struct {
	// Tolerance is the ratio of the latency to its usual value that still counts as normal, at least 1. If Tolerance is
	// 0, it is 1.5.
	Tolerance float64

	long float64 // long mean of the latency, in seconds
	seen int     // samples in it, up to gradient2Warm
}

const (
	gradient2Tolerance = 1.5
	gradient2Least     = 0.5 // the steepest fall
	gradient2Queue     = 4   // room for requests that wait
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

// Baseline returns the long mean of the latency.
func (g *Gradient2) Baseline() time.Duration { return time.Duration(g.long * float64(time.Second)) }

// stepGradient2 returns g and the limit after one sample.
func stepGradient2(g Gradient2, limit float64, s Sample) (Gradient2, float64) {
	short := max(s.Latency, time.Microsecond).Seconds()
	if !s.Dropped {
		g.learn(short, &s)
	}
	if float64(s.InFlight) < limit/2 { // the limit did not hold requests back, so this sample does not test it
		return g, limit
	}
	tolerance := g.Tolerance
	if tolerance == 0 {
		tolerance = gradient2Tolerance
	}
	gradient := min(max(tolerance*g.long/short, gradient2Least), 1)
	if s.Dropped {
		gradient = gradient2Least
	}
	wanted := limit*gradient + gradient2Queue
	return g, limit*(1-gradient2Smoothing) + wanted*gradient2Smoothing
}

// learn adds the latency of a success to the long mean.
func (g *Gradient2) learn(short float64, s *Sample) {
	if g.seen < gradient2Warm {
		g.seen++
		g.long += (short - g.long) / float64(g.seen)
	} else {
		g.long += (short - g.long) * 2 / (gradient2Window + 1)
	}
	if g.long > 2*short { // the mean remembers an overload that is over
		g.long *= gradient2Decay
	}
	if s.Ceiling > 0 {
		g.long = min(g.long, s.Ceiling.Seconds())
	}
}
