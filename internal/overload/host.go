package overload

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/splitmix"
	"github.com/spillway-go/spillway/stats"
)

const (
	probeEvery = time.Second // a request that should be held back is sent that often
	maxSources = 16          // processes behind one host whose advice is kept
	forgotten  = time.Minute // after which a process counts as gone, and its sequence begins anew
)

// The refusals of a client.
var (
	errHeld      = &spillway.Rejection{Policy: "overload", Reason: "held back", RetryAfter: probeEvery}
	errThrottled = &spillway.Rejection{Policy: "overload", Reason: "throttled", RetryAfter: probeEvery}
)

// Hosts are the servers that a client listens to. Their number is fixed, so their memory is bounded. A nil Hosts listens
// to none.
type Hosts struct {
	base    time.Time
	of      map[string]*Host
	refused [2]stats.Counter
}

// NewHosts returns the Hosts with the given names, or nil if there are none. Time is counted from now.
func NewHosts(names []string, now time.Time) *Hosts {
	if len(names) == 0 {
		return nil
	}
	h := &Hosts{base: now, of: map[string]*Host{}}
	for _, name := range names {
		h.of[name] = &Host{all: h}
	}
	return h
}

// Of returns the host with a name, or nil if the client does not listen to it.
func (h *Hosts) Of(name string) *Host {
	if h == nil {
		return nil
	}
	return h.of[name]
}

// HeldBack returns how many requests were refused because a server asked for it.
func (h *Hosts) HeldBack() int64 { return h.count(held) }

// Throttled returns how many were refused because a server refuses many.
func (h *Hosts) Throttled() int64 { return h.count(throttled) }

const (
	held = iota
	throttled
)

func (h *Hosts) count(which int) int64 {
	if h == nil {
		return 0
	}
	return h.refused[which].Value()
}

// A Host is what a client knows about one server, or about several behind one name. A nil Host refuses nothing. Its
// methods may be called concurrently.
type Host struct {
	all       *Hosts
	sources   atomic.Pointer[[]source] // never modified, only replaced
	text      atomic.Pointer[string]   // the last field
	probed    atomic.Int64             // when the last probe was sent
	throttles [3]throttle              // by priority: below Normal, Normal, above

	mu sync.Mutex // held while sources are replaced
}

// A source is the last advice of one process.
type source struct {
	Advice
	heard time.Duration // since the base of the Hosts, which is monotonic
}

// gone reports whether the process has been silent for long.
func (s *source) gone(now time.Duration) bool { return now < s.heard || now-s.heard >= forgotten }

// holds returns the share of the requests of a priority that the process asks to hold back, and false if its advice is
// no longer valid.
func (s *source) holds(priority int64, now time.Duration) (share float64, ok bool) {
	switch age := now - s.heard; {
	case age < 0 || age >= s.Valid:
		return 0, false
	case s.Reduce == 0 || priority > s.Level:
		return 0, true
	case priority == s.Level:
		return s.Reduce, true
	}
	return 1, true
}

// Refuses returns the reason not to send a request of a priority, or nil. It allocates nothing. If a request is sent,
// [Host.Answered] must be called with the result.
func (h *Host) Refuses(p spillway.Priority, now time.Time) *spillway.Rejection {
	if h == nil {
		return nil
	}
	at := now.Sub(h.all.base)
	share, told := h.share(int64(p), at)
	if share > 0 && chance(at, held) < share {
		if h.probes(at) {
			return nil
		}
		h.all.refused[held].Add(1)
		return errHeld
	}
	t, accepts := h.throttle(p), accepts
	if told && share < enough {
		accepts = acceptsTold
	}
	if !t.refuses(at, accepts) || h.probes(at) {
		return nil
	}
	t.count(at, false)
	h.all.refused[throttled].Add(1)
	return errThrottled
}

// chance returns a number in [0, 1) that follows from the time, so that nothing is written.
func chance(now time.Duration, which uint64) float64 {
	return float64(splitmix.Mix(uint64(now)*splitmix.Gamma+which)>>11) / (1 << 53)
}

// share returns the share of the requests of a priority to hold back: the mean of what the processes behind the host
// ask for, since any of them may get the request. It reports false if none says anything.
func (h *Host) share(priority int64, now time.Duration) (share float64, told bool) {
	sources := h.sources.Load()
	if sources == nil {
		return 0, false
	}
	n := 0
	for i := range *sources {
		if one, ok := (*sources)[i].holds(priority, now); ok {
			share += one
			n++
		}
	}
	return share / float64(max(n, 1)), n > 0
}

// probes reports whether it is time for a probe, and counts it.
func (h *Host) probes(now time.Duration) bool {
	last := h.probed.Load()
	if since := int64(now) - last; last != 0 && since >= 0 && since < int64(probeEvery) {
		return false
	}
	return h.probed.CompareAndSwap(last, max(int64(now), 1))
}

// Answered records the answer to a request of a priority: the field, if there was one, and the outcome, of which only
// Success and Dropped (the server refused) count.
func (h *Host) Answered(p spillway.Priority, field []string, o spillway.Outcome, now time.Time) {
	if h == nil {
		return
	}
	at := now.Sub(h.all.base)
	if len(field) == 1 {
		h.hear(field[0], at)
	}
	switch o {
	case spillway.Dropped:
		h.throttle(p).dropped(at)
	case spillway.Success:
		h.throttle(p).accepted(at)
	}
}

// throttle returns the throttle of a priority. Higher priorities are refused less, so each group has its own.
func (h *Host) throttle(p spillway.Priority) *throttle {
	switch {
	case p < spillway.Normal:
		return &h.throttles[0]
	case p > spillway.Normal:
		return &h.throttles[2]
	}
	return &h.throttles[1]
}

// hear stores a field, unless it is invalid or older than the last one of its process.
func (h *Host) hear(text string, now time.Duration) {
	if last := h.text.Load(); last != nil && *last == text {
		return // validity counts from the first answer with it
	}
	a, ok := Parse(text)
	if !ok || h.knows(&a, now) { // without the lock, because most answers are not new
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.knows(&a, now) {
		return
	}
	var next []source
	if old := h.sources.Load(); old != nil {
		for _, s := range *old {
			if s.Src != a.Src && !s.gone(now) {
				next = append(next, s)
			}
		}
	}
	if len(next) == maxSources {
		next = slices.Delete(next, 0, 1) // they stand in the order of their answers
	}
	kept := string([]byte(text)) // no part of a larger buffer
	a.Src = string([]byte(a.Src))
	h.text.Store(&kept)
	next = append(next, source{Advice: a, heard: now})
	h.sources.Store(&next)
}

// knows reports whether the process of a has said something newer, or the same.
func (h *Host) knows(a *Advice, now time.Duration) bool {
	sources := h.sources.Load()
	if sources == nil {
		return false
	}
	return slices.ContainsFunc(*sources, func(s source) bool { return s.Src == a.Src && s.Seq >= a.Seq && !s.gone(now) })
}
