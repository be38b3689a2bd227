package breaker

import (
	"maps"
	"time"
)

// lookEvery is how long a Keyed that is full of busy keys waits before it looks for idle ones again. So each key in a
// flood of new keys costs a look-up, not a search.
const lookEvery = instant(time.Second)

func (r *Keyed) maxKeys() int64 { return int64(r.opts.Load().MaxKeys) }

// add makes room for a key and returns its entry, or nil if there is none.
func (r *Keyed) add(key string, now instant) *entry {
	if r.keys.Load() >= r.maxKeys() && now < instant(r.retryAt.Load()) {
		return nil
	}
	if !r.insert(key, now) {
		return nil
	}
	return r.find(key)
}

func (r *Keyed) insert(key string, now instant) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.shard(key)
	members, name := *s.members.Load(), r.name(key)
	if members[name] != nil {
		return true
	}
	if r.keys.Load() >= r.maxKeys() {
		if now < instant(r.retryAt.Load()) || r.evict(now) == 0 || r.keys.Load() >= r.maxKeys() {
			r.retryAt.Store(int64(now.after(time.Duration(lookEvery))))
			return false
		}
		members = *s.members.Load()
	}
	members = maps.Clone(members)
	e := &entry{}
	e.used.Store(int64(now))
	members[name] = e
	s.members.Store(&members)
	r.keys.Add(1)
	return true
}

// evict forgets all idle keys and returns how many there were. r.mu is held.
func (r *Keyed) evict(now instant) (n int64) {
	for i := range r.shards {
		old := *r.shards[i].members.Load()
		var kept map[string]*entry
		for key, e := range old {
			if !r.kill(e, now) {
				continue
			}
			if kept == nil {
				kept = maps.Clone(old)
			}
			delete(kept, key)
			n++
		}
		if kept != nil {
			r.shards[i].members.Store(&kept)
		}
	}
	r.keys.Add(-n)
	r.evicted.Add(n)
	return n
}

// kill marks an entry dead if it is idle.
func (r *Keyed) kill(e *entry, now instant) bool {
	if !e.built.Load() {
		return false
	}
	if e.member == nil {
		return true
	}
	used := e.used.Load()
	if now < instant(used).after(e.member.window()) || !e.member.idle(r.base.at(now)) {
		return false
	}
	e.dead.Store(true)
	if !e.member.idle(r.base.at(now)) || e.used.Load() != used {
		e.dead.Store(false)
		return false
	}
	if b, ok := e.member.(*Breaker); ok {
		r.nextGen.Store(max(r.nextGen.Load(), b.discharge()))
	}
	return true
}

// mayOpen takes one of the places for open breakers, if there is one left.
func (r *Keyed) mayOpen() bool {
	most := r.opts.Load().MaxOpen
	for {
		n := r.open.Load()
		// A quotient of integers is rounded to the nearest float64, like the constant 0.57. A product may be off by
		// more.
		if most != 0 && n > 0 && float64(n+1)/float64(r.keys.Load()) > most {
			return false
		}
		if r.open.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// closed gives a place back.
func (r *Keyed) closed() { r.open.Add(-1) }

func (r *Keyed) opened(reason string) { r.openings.add(reason) }

// abandonedAfter is how many times MaxOpen a Breaker may wait for a probe before a Keyed may forget it.
const abandonedAfter = 10

func (b *Breaker) idle(now time.Time) bool {
	m, at, o := b.machineAt(now), b.instantAt(now), b.opts.Load()
	switch {
	case m.mode != Auto:
		return false
	case m.state != Closed:
		return m.state == HalfOpen && len(m.leases) == 0 && at >= m.since.after(min(o.MaxOpen, maxSpan/abandonedAfter)*abandonedAfter)
	}
	c := b.ring.sum(at)
	if p := b.phase.Load(); p.calls != nil && p.calls.failures.Load()+p.calls.slow.Load() > 0 || at < p.rampEnd {
		return false
	}
	return c.failures == 0 && c.slow == 0 && m.openingsAt(o, at) == 0 && b.ring.allInFlight() == 0
}

func (b *Breaker) window() time.Duration { return b.opts.Load().Window }

// join makes an unused Breaker a member of a Keyed. It begins with a generation that no forgotten Breaker had, so that
// late calls of a forgotten Breaker do not end here.
func (b *Breaker) join(r *Keyed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.veto = r
	if gen := r.nextGen.Load(); gen != 0 && b.machine.gen == 0 && b.base.time.Load() == nil {
		b.machine.gen, b.machine.first = gen, gen
		b.phase.Store(b.newPhaseAfter(nil, longAgo))
	}
}

// discharge gives back the place of a forgotten Breaker and returns the generation after its last one.
func (b *Breaker) discharge() (next uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.charged && b.veto != nil {
		b.veto.closed()
	}
	b.charged, b.veto = false, nil
	return (b.machine.gen + 1) % maxGen
}

func (t *Throttle) idle(now time.Time) bool {
	s := t.StatsAt(now)
	return s.InFlight == 0 && s.Requests == s.Accepts
}

func (t *Throttle) window() time.Duration { return t.opts.Load().Window }
