package deadline

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// defaultMaxKeys is more than the routes of most services; a full table takes about 200 KiB.
const defaultMaxKeys = 1000

// Options are the options of an [Estimator]. The zero Options consists entirely of defaults.
type Options struct {
	// MaxKeys is the number of keys with an estimate of their own. Further keys have none, and their requests are never too late.
	// If MaxKeys is 0, it is 1000.
	MaxKeys int

	// MinBudget is the least that [Estimator.MinBudget] returns. If MinBudget is 0, it is 100 ms.
	MinBudget time.Duration
}

// An Estimator keeps, per key, a low and a high quantile of the latency of requests. It is made by [New], and safe for concurrent
// use: it takes a lock only when it meets a new key, and does not allocate after that.
type Estimator struct {
	maxKeys   int
	leastFair time.Duration
	mu        sync.Mutex                        // held to add a key
	tracks    atomic.Pointer[map[string]*track] // replaced as a whole, never changed
}

// New returns an Estimator that knows nothing. If o is nil, it has the defaults. The error names the invalid field.
func New(o *Options) (*Estimator, error) {
	if o == nil {
		o = &Options{}
	}
	if o.MaxKeys < 0 {
		return nil, fmt.Errorf("deadline: MaxKeys: must be at least 0, got %d", o.MaxKeys)
	}
	fair, err := o.minBudget()
	if err != nil {
		return nil, err
	}
	e := &Estimator{maxKeys: o.MaxKeys, leastFair: fair}
	if e.maxKeys == 0 {
		e.maxKeys = defaultMaxKeys
	}
	e.tracks.Store(&map[string]*track{})
	return e, nil
}

// Observe learns that a request of key has finished after latency. A request that failed in a hurry, or was refused,
// should not be observed: it says nothing about how long the work takes. A negative latency counts as 0.
func (e *Estimator) Observe(key string, latency time.Duration, now time.Time) {
	if t := e.track(key, now); t != nil {
		t.observe(latency)
	}
}

// Unfinished learns that a request of key was cut off after latency, by its deadline or its client: it would have taken
// longer. Without it, an Estimator of requests that all meet their end too early would never learn.
func (e *Estimator) Unfinished(key string, latency time.Duration, now time.Time) {
	if t := e.track(key, now); t != nil {
		t.unfinished(latency)
	}
}

// TooLate reports whether a request of key that starts now should be refused because it would hardly finish before
// deadline. It is true if deadline is not after now. Else it is false if deadline is zero, if fewer than 20 requests of
// key have been observed, and for a probe: a request that is too late, but is let through to learn whether that is still so.
func (e *Estimator) TooLate(key string, now, deadline time.Time) bool {
	if deadline.IsZero() {
		return false
	}
	left := deadline.Sub(now)
	if left <= 0 {
		return true
	}
	t := (*e.tracks.Load())[key]
	if t == nil {
		return false
	}
	estimate, known := t.estimate()
	return known && left < estimate && !t.probe(now, estimate)
}

// Estimate returns the latency that one request in twenty of key stays under, and whether there is one: after 20
// requests have been observed.
func (e *Estimator) Estimate(key string) (latency time.Duration, known bool) {
	t := (*e.tracks.Load())[key]
	if t == nil {
		return 0, false
	}
	return t.estimate()
}

// track returns the track of key, a new one if need be, or nil if there is no room for another.
func (e *Estimator) track(key string, now time.Time) *track {
	tracks := *e.tracks.Load()
	if t := tracks[key]; t != nil {
		return t
	}
	if len(tracks) >= e.maxKeys {
		return nil
	}
	return e.add(key, now)
}

func (e *Estimator) add(key string, now time.Time) *track {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := *e.tracks.Load()
	if t := old[key]; t != nil || len(old) >= e.maxKeys {
		return t
	}
	next := make(map[string]*track, len(old)+1)
	maps.Copy(next, old)
	t := &track{born: now}
	next[strings.Clone(key)] = t // key may be part of something large
	e.tracks.Store(&next)
	return t
}
