package deadline

import (
	"sync/atomic"
	"time"
)

const (
	// warmUp is how many requests must be observed before there is an estimate: the fastest of twenty requests is one
	// in twenty.
	warmUp = 20

	// A faster request lowers the estimate by down, a slower one raises it by up. It settles where the two balance:
	// where up/(up+down), one in twenty, are faster. The steps are proportional, so it follows microseconds and minutes
	// equally well: it takes 11 faster or 201 slower requests to fall or rise by a factor of e. In balance, it stays
	// within some 15 % for latencies that spread over an order of magnitude.
	up   = 0.005
	down = 0.095

	leastEstimate = time.Microsecond // steps of whole nanoseconds stay small against it
	mostEstimate  = 365 * 24 * time.Hour

	// The time between two probes is probeEvery estimates, within these bounds.
	probeEvery = 4
	leastProbe = 10 * time.Millisecond
	mostProbe  = time.Second
)

// A track holds the estimates for one key.
//
// The estimate is a quantile, found by stochastic approximation with multiplicative steps (Yazidi and Hammer,
// "Multiplicative update methods for incremental quantile estimation", IEEE Transactions on Cybernetics, 2017).
type track struct {
	state  atomic.Uint64 // the number of observations, up to warmUp, in the upper 8 bits; the estimate in the lower 56
	probed atomic.Int64  // when the last probe was let through, in nanoseconds since born
	fair   atomic.Uint64 // like state, for the budget; 0 until something has been learnt
	born   time.Time
	_      [80]byte // the next track is of another route, served by other cores
}

const estimateBits = 56

func pack(seen uint64, estimate time.Duration) uint64 {
	return seen<<estimateBits | uint64(min(max(estimate, leastEstimate), mostEstimate))
}

func unpack(state uint64) (seen uint64, estimate time.Duration) {
	return state >> estimateBits, time.Duration(state & (1<<estimateBits - 1))
}

func (t *track) estimate() (time.Duration, bool) {
	seen, estimate := unpack(t.state.Load())
	return estimate, seen >= warmUp
}

// observe moves the estimate. If samples arrive at the same instant, one may be lost; which one does not depend on its
// latency.
func (t *track) observe(latency time.Duration) {
	state := t.state.Load()
	seen, estimate := unpack(state)
	for ; seen < warmUp; seen, estimate = unpack(state) {
		least := latency
		if seen > 0 {
			least = min(estimate, latency)
		}
		if t.state.CompareAndSwap(state, pack(seen+1, least)) {
			return
		}
		state = t.state.Load() // the requests of the warm-up are few, so all of them count
	}
	switch {
	case latency < estimate:
		t.state.CompareAndSwap(state, pack(seen, estimate-step(estimate, down)))
	case latency > estimate:
		t.state.CompareAndSwap(state, pack(seen, estimate+step(estimate, up)))
	}
}

// unfinished records a request that takes longer than latency. If latency is less than the estimate, it has no effect.
func (t *track) unfinished(latency time.Duration) {
	seen, estimate := unpack(t.state.Load())
	if least := min(latency, mostEstimate) + 1; seen == 0 || least >= estimate {
		t.observe(least)
	}
}

// step returns a share of estimate, 1 ns at least.
func step(estimate time.Duration, share float64) time.Duration {
	return max(time.Duration(float64(estimate)*share), 1)
}

// probe reports whether it is time for another probe. If so, the caller's request is the probe. A clock that went back
// by more than the time between probes does not end them.
func (t *track) probe(now time.Time, estimate time.Duration) bool {
	at := int64(now.Sub(t.born))
	last := t.probed.Load()
	since := time.Duration(at - last)
	every := min(max(probeEvery*estimate, leastProbe), mostProbe)
	return (since >= every || since <= -every) && t.probed.CompareAndSwap(last, at)
}
