package main

import (
	"math"
	"time"
)

// A ledger records the requests that a limit admitted, and checks them against the promise of the limit. Entries are settled in
// chronological order, once they can no longer be given back.
type ledger struct {
	name    string
	promise promise
	hold    time.Duration // time within which an entry may be given back
	entries []*entry
}

// An entry is a number of tokens used at an instant.
type entry struct {
	at   time.Duration // by the monotonic clock
	wall time.Time
	n    int64
}

// A promise is a plain and slow model of the promise of a limit. It takes entries in the order of their time and
// returns the use that it saw and the greatest use that it expected.
type promise interface {
	use(e *entry) (got, most float64)
	// tune changes the numbers of the promise.
	tune(at time.Duration, rate, limit float64)
}

// take records n tokens used at the time at, which may be in the future for a reservation.
func (l *ledger) take(w *world, at time.Time, n int64) *entry {
	e := &entry{at: at.Sub(w.base), wall: at, n: n}
	l.settle(w)
	i := len(l.entries)
	for i > 0 && l.entries[i-1].at > e.at {
		i--
	}
	l.entries = append(l.entries, nil)
	copy(l.entries[i+1:], l.entries[i:])
	l.entries[i] = e
	return e
}

// settle checks the entries that can no longer change.
func (l *ledger) settle(w *world) {
	n := 0
	for ; n < len(l.entries) && l.entries[n].at+l.hold <= w.now; n++ {
		e := l.entries[n]
		if e.n == 0 {
			continue
		}
		if got, most := l.promise.use(e); got > most*(1+1e-9)+1e-6 {
			w.violate(l.name, "at most %.6g expected at %v, %.6g were let through", most, e.at, got)
		}
	}
	l.entries = append(l.entries[:0], l.entries[n:]...)
}

func (l *ledger) tune(w *world, rate, limit float64) {
	l.settle(w)
	l.promise.tune(w.now, rate, limit)
}

// leaky promises that at most burst + rate × d tokens are used in any time d.
type leaky struct {
	rate  float64 // per second
	burst float64
	level float64
	at    time.Duration
}

func (p *leaky) use(e *entry) (got, most float64) {
	p.leak(e.at)
	p.level += float64(e.n)
	return p.level, p.burst
}

func (p *leaky) leak(at time.Duration) {
	p.level = math.Max(0, p.level-p.rate*math.Max(0, (at-p.at).Seconds()))
	p.at = max(p.at, at)
}

func (p *leaky) tune(at time.Duration, rate, burst float64) {
	p.leak(at)
	p.rate, p.burst = rate, burst
	p.level = math.Min(p.level, burst)
}

// sliding promises that at most limit tokens are used in any window. A fixed window, whose edges are not known here,
// promises twice its limit. Requests admitted under an older limit do not count against the new one.
type sliding struct {
	window time.Duration
	limit  float64
	fixed  bool
	used   []*entry
	sum    float64
	older  float64       // the greatest limit that may still be in the window
	until  time.Duration // the end of that
}

func (p *sliding) use(e *entry) (got, most float64) {
	n := 0
	for ; n < len(p.used) && p.used[n].at <= e.at-p.window; n++ {
		p.sum -= float64(p.used[n].n)
	}
	p.used = append(append(p.used[:0], p.used[n:]...), e)
	p.sum += float64(e.n)
	if !p.fixed {
		return p.sum, p.limit
	}
	if e.at >= p.until {
		p.older = 0
	}
	return p.sum, p.limit + math.Max(p.limit, p.older)
}

func (p *sliding) tune(at time.Duration, _, limit float64) {
	if at >= p.until {
		p.older = 0
	}
	p.older, p.until, p.limit = math.Max(p.limit, p.older), at+p.window, limit
}

// calendar promises that at most limit tokens are used in any hour of the wall clock. If the clock is set back, tokens
// count in the hour that it then shows.
type calendar struct {
	limit, most float64 // greatest of the limits that applied in this hour
	hour        int64
	sum         float64
}

func (p *calendar) use(e *entry) (got, most float64) {
	hour := e.wall.Unix() / 3600
	if hour > p.hour {
		p.sum, p.most = 0, p.limit
	}
	p.hour = hour
	p.sum += float64(e.n)
	return p.sum, p.most
}

func (p *calendar) tune(_ time.Duration, _, limit float64) {
	p.limit, p.most = limit, math.Max(p.most, limit)
}
