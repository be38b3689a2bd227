package adaptive

import "time"

// A Sample is the data that an [Estimator] gets about one request.
type Sample struct {
	Latency  time.Duration // from its admission to its end
	InFlight int           // requests in flight when it was admitted, itself included
	Dropped  bool          // it met overload downstream; its Latency says nothing about a healthy request
	// Ceiling is the longest latency that may count as healthy, whatever the samples say. If Ceiling is 0, there is none.
	Ceiling time.Duration
}

// An Estimator learns how many requests may be in flight. Use [Gradient2], [Vegas], [AIMD], or your own. An Estimator
// belongs to one [Limit], which calls it for one sample at a time. If it also has a method Baseline() time.Duration, which
// returns the latency that counts as healthy, or 0 while that is unknown, [Stats] shows the result.
type Estimator interface {
	// Step returns the limit after one more sample, given the limit before it. The Limit clamps the result to its
	// bounds; if the result is NaN, the limit does not change.
	Step(limit float64, s Sample) float64
}

// A baseliner is an [Estimator] with a baseline.
type baseliner interface{ Baseline() time.Duration }

// capped returns d, or the ceiling if that is less.
func (s *Sample) capped(d time.Duration) time.Duration {
	if s.Ceiling > 0 {
		return min(d, s.Ceiling)
	}
	return d
}
