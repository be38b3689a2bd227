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
	// MaxKeys is the number of keys with an estimate. Requests of further keys are never too late. If MaxKeys is 0, it
	// is 1000.
	MaxKeys int
}

// An Estimator keeps, per key, a low quantile of the latency of requests. It is made by [New], and safe for concurrent
// use: it takes a lock only when it meets a new key, and does not allocate after that.
type Estimator struct {
	maxKeys int
	sparse  uint64                            // one slower request stands for so many; 1 in tests that count
	mu      sync.Mutex                        // held to add a key
	tracks  atomic.Pointer[map[string]*track] // replaced as a whole, never changed
	list    atomic.Pointer[[]*track]          // the same, by their id; the first is nil
}

// New returns an empty Estimator. If o is nil, it has the defaults. The error names the invalid field.
func New(o *Options) (*Estimator, error) {
	if o == nil {
		o = &Options{}
	}
	if o.MaxKeys < 0 {
		return nil, fmt.Errorf("deadline: MaxKeys: must be at least 0, got %d", o.MaxKeys)
	}
	e := &Estimator{maxKeys: o.MaxKeys, sparse: sparse}
	if e.maxKeys == 0 {
		e.maxKeys = defaultMaxKeys
	}
	e.clear()
	return e, nil
}

// Observe records that a request of key has finished at now, after latency. Do not observe requests that failed quickly
// or were refused, because they say nothing about how long the work takes. A negative latency counts as 0.
func (e *Estimator) Observe(key string, latency time.Duration, now time.Time) {
	if t := e.track(key, now); t != nil {
		t.observe(latency, t.at(now), e.sparse)
	}
}

// Unfinished records that a request of key was cut off at now, after latency, and would have taken longer. Without it,
// an Estimator would never learn if all requests were cut off.
func (e *Estimator) Unfinished(key string, latency time.Duration, now time.Time) {
	if t := e.track(key, now); t != nil {
		t.unfinished(latency, t.at(now), e.sparse)
	}
}

// Late reports whether a request of key that starts now and has so much time left should be refused because it is unlikely to
// finish. It should if left is not positive. Otherwise it should not if fewer than 20 requests of key have been observed, or if
// it is a probe: a late request that is admitted to find out whether the estimate still holds. A probe that does not run should
// be given back by [Estimator.Unprobe].
//
// The id of the key spares [Estimator.ObserveID] and [Estimator.Unprobe] the search for it. It is 0 if nothing is known.
func (e *Estimator) Late(key string, now time.Time, left time.Duration) (late, probe bool, id int) {
	if left <= 0 {
		return true, false, 0
	}
	t := (*e.tracks.Load())[key]
	if t == nil {
		return false, false, 0
	}
	estimate, known := t.estimate()
	if !known || left >= estimate {
		return false, false, t.id
	}
	late, probe = t.judge(now, left)
	return late, probe, t.id
}

// ObserveID is [Estimator.Observe] for the key of an id other than 0, and a request that arrived at a time.
func (e *Estimator) ObserveID(id int, latency time.Duration, arrived time.Time) {
	t := (*e.list.Load())[id]
	t.observe(latency, t.at(arrived)+int64(latency), e.sparse)
}

// Unprobe gives back the probe of the key with an id that [Estimator.Late] admitted at now, so that the next one comes at once. Of two
// probes in a row, only the first can be given back. Otherwise all late requests would be probes that wait in a queue and
// give up.
func (e *Estimator) Unprobe(id int, now time.Time) {
	t := (*e.list.Load())[id]
	t.unprobe(t.at(now))
}

// Keys returns the number of keys with an estimate, or with the beginning of one.
func (e *Estimator) Keys() int { return len(*e.tracks.Load()) }

// Estimate returns the latency that one request in a hundred of key stays under, and whether there is one: after 20
// requests have been observed.
func (e *Estimator) Estimate(key string) (latency time.Duration, known bool) {
	t := (*e.tracks.Load())[key]
	if t == nil {
		return 0, false
	}
	return t.estimate()
}

// clear makes e know no key.
func (e *Estimator) clear() {
	e.tracks.Store(&map[string]*track{})
	e.list.Store(&[]*track{nil})
}

// track returns the track of key, a new one if need be, or nil if there is no room for another.
func (e *Estimator) track(key string, now time.Time) *track {
	tracks := *e.tracks.Load()
	if t := tracks[key]; t != nil {
		return t
	}
	if len(tracks) >= e.maxKeys || len(key) > longestKey {
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
	list := append([]*track(nil), *e.list.Load()...)
	t := &track{born: now, id: len(list)}
	list = append(list, t)
	next[strings.Clone(key)] = t // key may be part of something large
	e.list.Store(&list)
	e.tracks.Store(&next)
	return t
}
