package limiter

import (
	"fmt"
	"time"

	"github.com/spillway-go/spillway/internal/rejections"
)

// A SlidingWindow is the [Rule] that lets through at most Limit tokens in any Window, with no edges to exploit. It counts in
// Buckets sub-windows, so it takes 16 bytes for each of them, whatever the limit.
//
// Tokens count until the end of their sub-window, and for one Window after that. So never more than Limit tokens pass
// in any interval of Window. If there is enough demand, at least Limit tokens pass in any interval of Window × (1 +
// 1/Buckets). With 60 Buckets, a caller that asks all the time gets 98.4 % of the limit. A [SlidingLog] is exact.
//
// Limit and Window are required.
type SlidingWindow struct {
	// Limit is how many tokens may pass in any Window, at least 1 and at most 2^53.
	Limit int
	// Window is how long passed tokens count.
	Window time.Duration
	// Buckets is the number of sub-windows, at most one for each ns of Window and at most 1000. If Buckets is 0, it is 60.
	Buckets int
	// Name is the name of the limit in rejections, metrics and header fields, in printable ASCII. If Name is empty, it
	// is "sliding window".
	Name string
}

// A SlidingLog is the [Rule] that lets through at most Limit tokens in any Window, exactly, by remembering when each
// token passed. It takes 16 bytes per token of the limit for requests of cost 1 that come one at a time, and at most
// twice that with reservations. If that is too much, take a [SlidingWindow].
//
// Limit and Window are required.
type SlidingLog struct {
	// Limit is how many tokens may pass in any Window, at least 1 and at most 2^20, which bounds the log to 32 MiB.
	Limit int
	// Window is how long passed tokens count.
	Window time.Duration
	// Name is the name of the limit in rejections, metrics and header fields, in printable ASCII. If Name is empty, it
	// is "sliding log".
	Name string
}

const (
	defaultSlidingBuckets = 60
	maxSlidingBuckets     = 1000
	maxLog                = 1 << 20
)

func (r SlidingWindow) plan() (p plan[slidingState], err error) {
	const kind = "SlidingWindow"
	if r.Buckets == 0 {
		r.Buckets = defaultSlidingBuckets
	}
	if r.Buckets < 0 || r.Buckets > maxSlidingBuckets {
		return p, fmt.Errorf("limiter: %s: Buckets must be in 1..%d, got %d", kind, maxSlidingBuckets, r.Buckets)
	}
	c, err := slidingBy(kind, r.Limit, maxLimit, r.Window)
	if err != nil {
		return p, err
	}
	if c.quantum = c.length / int64(r.Buckets); c.quantum == 0 {
		return p, fmt.Errorf("limiter: %s: Window must have at least one ns per bucket, got %v", kind, r.Window)
	}
	if c.quantum*int64(r.Buckets) < c.length {
		c.quantum++
	}
	// The instants of one window touch one more sub-window than it has, and the same number again may be reserved.
	c.entries = 2 * (r.Buckets + 1)
	r.Name, err = named(kind, r.Name, "sliding window")
	return plan[slidingState]{rule: r, kind: kind, name: r.Name, reason: rejections.Quota, core: c}, err
}

func (r SlidingWindow) build() (Limiter, error) { return newLimit(r.plan()) }

func (r SlidingWindow) keyed(maxKeys int) (keyedLimits, error) { return newKeyedLimits(maxKeys, r) }

func (r SlidingLog) plan() (p plan[slidingState], err error) {
	const kind = "SlidingLog"
	c, err := slidingBy(kind, r.Limit, maxLog, r.Window)
	if err != nil {
		return p, err
	}
	c.entries = 2 * r.Limit
	r.Name, err = named(kind, r.Name, "sliding log")
	return plan[slidingState]{rule: r, kind: kind, name: r.Name, reason: rejections.Quota, core: c}, err
}

func (r SlidingLog) build() (Limiter, error) { return newLimit(r.plan()) }

func (r SlidingLog) keyed(maxKeys int) (keyedLimits, error) { return newKeyedLimits(maxKeys, r) }

func slidingBy(kind string, limit int, most int64, window time.Duration) (*sliding, error) {
	if limit < 1 || int64(limit) > most {
		return nil, fmt.Errorf("limiter: %s: Limit must be in 1..%d, got %d", kind, most, limit)
	}
	if window <= 0 || window > horizon {
		return nil, fmt.Errorf("limiter: %s: Window must be in 1ns..%v, got %v", kind, time.Duration(horizon), window)
	}
	return &sliding{limit: int64(limit), length: int64(window)}, nil
}
