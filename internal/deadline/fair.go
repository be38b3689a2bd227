package deadline

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// None is the time left of a request without a deadline.
const None time.Duration = math.MaxInt64

const (
	defaultMinBudget = 100 * time.Millisecond

	// A slower request raises the budget by fairUp, a faster one lowers it by fairDown: it settles where one in ten is slower.
	// The first warmUp requests move it by fairHaste times as much.
	fairUp    = 0.045
	fairDown  = 0.005
	fairHaste = 10

	// generous is how many budgets of time a request must have had for its latency to count. Requests with less time
	// succeed only if they are fast, so counting them would lower the budget step by step.
	generous = 2
)

func (o *Options) minBudget() (time.Duration, error) {
	switch {
	case o.MinBudget < 0:
		return 0, fmt.Errorf("deadline: MinBudget: must be at least 0, got %v", o.MinBudget)
	case o.MinBudget == 0:
		return defaultMinBudget, nil
	}
	return min(o.MinBudget, mostEstimate), nil
}

// MinBudget returns the shortest time budget for which a missed deadline of key counts against the service: the time in
// which nine of ten requests of key finish, and at least Options.MinBudget. It learns from [Estimator.ObserveWithin].
func (e *Estimator) MinBudget(key string) time.Duration {
	if t := (*e.tracks.Load())[key]; t != nil {
		_, estimate := unpack(t.fair.Load())
		return max(estimate, e.leastFair)
	}
	return e.leastFair
}

// ObserveWithin calls [Estimator.Observe]. left is the time until the deadline of the request, or [None]. If left is at
// least twice the budget, it also learns the budget. Requests with less time finish only if they are fast.
func (e *Estimator) ObserveWithin(key string, latency, left time.Duration, now time.Time) {
	t := e.track(key, now)
	if t == nil {
		return
	}
	t.observe(latency, t.at(now), e.sparse)
	observeFair(&t.fair, latency, left, e.leastFair)
}

// observeFair moves the budget in state, packed like the state of a track. The budget never goes below least. If samples
// arrive at the same instant, one may be lost.
func observeFair(state *atomic.Uint64, latency, left, least time.Duration) {
	old := state.Load()
	seen, fair := unpack(old)
	fair = max(fair, least)
	settled := seen >= warmUp
	if left/generous < fair || settled && fair == least && latency <= least {
		return
	}
	haste := float64(fairHaste)
	if settled {
		haste = 1
	}
	switch {
	case latency > fair:
		fair += step(fair, fairUp*haste)
	case latency < fair:
		fair = max(fair-step(fair, fairDown*haste), least)
	}
	state.CompareAndSwap(old, pack(min(seen+1, warmUp), fair))
}
