package deadline

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/spillway-go/spillway/internal/splitmix"
)

const (
	// warmUp is how many requests must be observed before there is an estimate, which starts at the fastest of them.
	warmUp = 20

	// A faster request lowers the estimate by down, a slower one raises it by up. It settles where the two balance: where one
	// in a hundred, up/(up+down), are faster. The steps are proportional, so it follows microseconds and minutes equally well:
	// it takes 5 faster or 501 slower requests to fall or rise by a factor of e. A higher quantile refuses too many requests
	// that would be in time: one in twenty, 2 % of them in a full pool (TestHopelessRequestsCostNothing in sim).
	up   = 0.002
	down = 0.198

	// sparse is the number of slower requests that one counted request stands for, so that most requests do not write to
	// memory that all share.
	sparse = 8

	leastEstimate = time.Microsecond // steps of whole nanoseconds stay small against it
	mostEstimate  = 365 * 24 * time.Hour

	// The time between two probes is probeEvery estimates, within these bounds.
	probeEvery = 4
	leastProbe = 10 * time.Millisecond
	mostProbe  = time.Second

	// leastChance is the estimate divided by the least time that a probe must have. So clients with absurdly short
	// deadlines do not take the probes from the others.
	leastChance = 16

	// fadeAfter is how long an estimate may refuse requests while none is observed, before it halves. So it ends even if
	// every probe is cut off by its client.
	fadeAfter = 10 * time.Second
	// settleAfter is how long observations do not renew the beginning of such a time, to save writes.
	settleAfter = time.Second
)

// A track holds the estimates for one key.
//
// The estimate is a quantile, found by stochastic approximation with multiplicative steps (Yazidi and Hammer,
// "Multiplicative update methods for incremental quantile estimation", IEEE Transactions on Cybernetics, 2017).
type track struct {
	state  atomic.Uint64 // the number of observations, up to warmUp, in the upper 8 bits; the estimate in the lower 56
	probed atomic.Int64  // when the last probe was let through, in nanoseconds since born
	back   atomic.Int64  // when the last probe that was given back was let through
	since  atomic.Int64  // when it began to refuse without an observation, in nanoseconds since born, or 0
	id     int
	born   time.Time
	// The next track is of another route, served by other cores: this one fills two cache lines.
	_ [128 - 4*8 - unsafe.Sizeof(0) - unsafe.Sizeof(time.Time{})]byte
}

const estimateBits = 56

func pack(seen uint64, estimate time.Duration) uint64 {
	return seen<<estimateBits | uint64(min(max(estimate, leastEstimate), mostEstimate))
}

func unpack(state uint64) (seen uint64, estimate time.Duration) {
	return state >> estimateBits, time.Duration(state & (1<<estimateBits - 1))
}

// at returns a time in nanoseconds since the track was made.
func (t *track) at(now time.Time) int64 { return int64(now.Sub(t.born)) }

func (t *track) estimate() (time.Duration, bool) {
	seen, estimate := unpack(t.state.Load())
	return estimate, seen >= warmUp
}

// observe moves the estimate. If samples arrive at the same instant, one may be lost; which one does not depend on its
// latency.
func (t *track) observe(latency time.Duration, at int64, sparse uint64) {
	t.settle(at)
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
	case latency < estimate && estimate > leastEstimate:
		t.state.CompareAndSwap(state, pack(seen, estimate-step(estimate, down)))
	case latency > estimate && splitmix.Mix(uint64(at))%sparse == 0: // by the time, so that simulations repeat
		t.state.CompareAndSwap(state, pack(seen, estimate+step(estimate, up*float64(sparse))))
	}
}

// unfinished records a request that takes longer than latency. If latency is less than the estimate, it has no effect.
func (t *track) unfinished(latency time.Duration, at int64, sparse uint64) {
	seen, estimate := unpack(t.state.Load())
	if least := min(latency, mostEstimate) + 1; seen == 0 || least >= estimate {
		t.observe(least, at, sparse)
	}
}

// judge decides about a request with less time left than the estimate.
func (t *track) judge(now time.Time, left time.Duration) (late, probe bool) {
	at := t.at(now)
	_, estimate := unpack(t.state.Load())
	estimate >>= t.halvings(at)
	switch {
	case left >= estimate:
		return false, false
	case left >= estimate/leastChance && t.probe(at, estimate):
		return false, true
	case t.since.Load() == 0:
		t.since.CompareAndSwap(0, max(at, 1))
	}
	return true, false
}

// halvings returns how often the estimate counts as halved at a time, because nothing was observed while it refused.
func (t *track) halvings(at int64) uint {
	since := t.since.Load()
	if since == 0 || at < since {
		return 0
	}
	return uint(min((at-since)/int64(fadeAfter), estimateBits))
}

// settle halves the estimate for good if it has faded, and notes that there is an observation at a time.
func (t *track) settle(at int64) {
	since := t.since.Load()
	if since == 0 {
		return
	}
	halvings := t.halvings(at)
	if at >= since && at-since < int64(settleAfter) || !t.since.CompareAndSwap(since, 0) || halvings == 0 {
		return
	}
	state := t.state.Load()
	seen, estimate := unpack(state)
	t.state.CompareAndSwap(state, pack(seen, estimate>>halvings))
}

// step returns a share of estimate, 1 ns at least.
func step(estimate time.Duration, share float64) time.Duration {
	return max(time.Duration(float64(estimate)*share), 1)
}

// probe reports whether it is time for another probe. If so, the caller's request is the probe. A clock that went back
// by more than the time between probes does not end them.
func (t *track) probe(at int64, estimate time.Duration) bool {
	last := t.probed.Load()
	return due(at-last, estimate) && t.probed.CompareAndSwap(last, at)
}

// due reports whether another probe is due so long after the last one, in nanoseconds.
func due(since int64, estimate time.Duration) bool {
	every := int64(min(max(probeEvery*estimate, leastProbe), mostProbe))
	return since >= every || since <= -every
}

// unprobe gives back the probe that was let through at the given time, if the one before was not given back.
func (t *track) unprobe(at int64) {
	_, estimate := unpack(t.state.Load())
	if back := t.back.Load(); due(at-back, estimate) && t.back.CompareAndSwap(back, at) {
		t.probed.CompareAndSwap(at, at-int64(mostProbe))
	}
}
