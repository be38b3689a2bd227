package deadline

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// None is the time given to a request without a deadline.
const None time.Duration = math.MaxInt64

const (
	// chanceWarmUp is the number of requests that have to succeed before a latency is known: the estimate starts at the
	// slowest of them.
	chanceWarmUp = 10

	// A slower request raises the estimate of a Chance by chanceUp, a faster one lowers it by chanceDown. It settles where one
	// request in a hundred is slower. It takes about 10 slower or 1000 faster requests to change it by a factor of e.
	chanceUp   = 0.1
	chanceDown = chanceUp / 99

	// chanceSample is the number of faster requests that one counted request stands for. So most requests do not write
	// to shared memory.
	chanceSample = 8

	// generous is how many budgets of time a request must have had for its latency to count. Requests with less time
	// succeed only if they are fast, so counting them would lower the budget step by step.
	generous = 2

	// longestKey is the length in bytes of the longest key that is kept. Nothing is learnt about longer keys.
	longestKey = 256
)

// A Chance decides whether a missed deadline had left enough time, from the latency of successful requests of the same
// key. A shorter deadline is the caller's choice, and does not count against the service.
//
// Per key, such as a route or a method, a Chance follows the latency that 99 of 100 successful requests stay under. The
// quantile is high because a caller may send the slowest kind of request. Only requests with twice that time teach it. The
// estimate never exceeds the slowest request observed. So if all callers have the same deadline, their missed deadlines
// still count.
//
// A Chance is made by [NewChance], and safe for concurrent use: it takes a lock only when it meets a new key, and does not
// allocate after that.
type Chance struct {
	least  time.Duration
	tracks Estimator // for its table alone
}

// NewChance returns an empty Chance: until 10 requests of a key have succeeded, a time of least or more is fair. If o
// is nil, it has the defaults. The error names the invalid field.
func NewChance(least time.Duration, o *Options) (*Chance, error) {
	if least < 0 {
		return nil, fmt.Errorf("deadline: least: must be at least 0, got %v", least)
	}
	e, err := New(o)
	if err != nil {
		return nil, err
	}
	c := &Chance{least: least, tracks: Estimator{maxKeys: e.maxKeys}}
	c.tracks.clear()
	return c, nil
}

// Observe records that a request of key, which was given so much time or [None], succeeded after latency. A negative
// latency counts as 0.
func (c *Chance) Observe(key string, latency, given time.Duration) {
	if t := c.tracks.track(key, time.Time{}); t != nil && given/generous >= c.Needs(key) {
		t.observeHigh(latency)
	}
}

// Known reports whether a request of key has been observed.
func (c *Chance) Known(key string) bool { return (*c.tracks.tracks.Load())[key] != nil }

// Fair reports whether given, without the time that the caller used up itself, is enough for a request of key.
func (c *Chance) Fair(key string, given time.Duration) bool { return given >= c.Needs(key) }

// Needs returns the shortest time that is fair: the 99th percentile of the latency of successful requests of key, or
// the constant given to [NewChance] while that is unknown.
func (c *Chance) Needs(key string) time.Duration {
	if t := (*c.tracks.tracks.Load())[key]; t != nil {
		if seen, estimate := unpack(t.state.Load()); seen >= chanceWarmUp {
			return estimate
		}
	}
	return c.least
}

// observeHigh moves an estimate of the 99 % quantile. If samples arrive at the same instant, one may be lost.
func (t *track) observeHigh(latency time.Duration) {
	state := t.state.Load()
	seen, estimate := unpack(state)
	for ; seen < chanceWarmUp; seen, estimate = unpack(state) {
		if t.state.CompareAndSwap(state, pack(seen+1, max(estimate, latency))) {
			return
		}
		state = t.state.Load()
	}
	switch {
	case latency > estimate:
		t.state.CompareAndSwap(state, pack(seen, min(estimate+step(estimate, chanceUp), latency)))
	case latency < estimate && rand.Uint32()%chanceSample == 0:
		t.state.CompareAndSwap(state, pack(seen, max(estimate-step(estimate, chanceSample*chanceDown), latency)))
	}
}
