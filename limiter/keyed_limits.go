package limiter

import (
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
)

// keyedLimits holds the methods of a Keyed that do not depend on the type of the state.
type keyedLimits interface { //nolint:interfacebloat // it is what Keyed does, kind by kind
	take(m moment, key string, n, maxWait int64) (wait int64, stamp uint64, v verdict)
	giveBack(m moment, key string, b loan)
	refusal(m moment, n, wait int64, v verdict) *spillway.Rejection
	peek(m moment, key string) State
	tune(m moment, rule Rule) error
	check(rule Rule) (Rule, error)
	rule() Rule
	stats() KeyedStats
	name() string
	max() int64
	window() time.Duration
	calendar() bool // the wall clock matters
	lends() bool    // taken tokens are always given back
}

// sharedBit marks the stamp of tokens taken from the limit that new keys share.
const sharedBit = 1 << 63

// A keyed is a table of states that share one core.
type keyed[S any] struct {
	*table[S]
	core   atomic.Pointer[core[S]]
	plan   atomic.Pointer[plan[S]]
	reject refusals // without ends if each key has windows of its own
	wall   bool
	lent   bool
}

func newKeyedLimits[S any](maxKeys int, r planner[S]) (keyedLimits, error) {
	p, err := r.plan()
	if err != nil {
		return nil, err
	}
	k := &keyed[S]{table: newTable[S](maxKeys), reject: refusals{Set: p.rejections()}, wall: p.calendar}
	if p.calendar {
		k.reject.ends = new(countdown)
	}
	_, k.lent = any(p.core).(*lending)
	k.core.Store(&p.core)
	k.plan.Store(&p)
	return k, nil
}

func (k *keyed[S]) take(m moment, key string, n, maxWait int64) (wait int64, stamp uint64, v verdict) {
	sh, id := k.lock(key)
	c := *k.core.Load() // under the lock of the shard, so that state and core are of the same time
	if n < 0 || n > c.max() {
		sh.counts.impossible++
		sh.mu.Unlock()
		return 0, 0, impossible
	}
	s, mark := sh.find(id), uint64(0)
	if s == nil {
		s = sh.insert(k.table, id, m.ns, func(s *S) bool { return c.idle(s, m) })
		m.ns = max(m.ns, sh.last) // so that a stale clock does not find a fresh state in place of a forgotten one
		if s == nil {
			s, mark = &sh.shared, sharedBit
			sh.tally.overflowed++
		} else {
			s.state = c.heir(&sh.shared.state, m) // the key may have taken from it while there was no room
		}
	}
	ok := n == 0
	if !ok {
		wait, stamp, ok = c.take(&s.state, m, n, maxWait)
	}
	if ok {
		sh.counts.admitted++
		sh.mu.Unlock()
		return wait, stamp | mark, taken
	}
	sh.counts.refused++
	sh.mu.Unlock()
	return wait, 0, refused
}

func (k *keyed[S]) giveBack(m moment, key string, b loan) {
	sh, id := k.lock(key)
	defer sh.mu.Unlock()
	if b.n < 0 {
		return
	}
	c := *k.core.Load()
	s := sh.find(id)
	switch {
	case b.stamp != noStamp && b.stamp&sharedBit != 0:
		s, b.stamp = &sh.shared, b.stamp&^sharedBit
	case k.lent:
		// Without a stamp it is unknown whether a place was lent while the key had no limit of its own. Places that the key
		// does not hold, perhaps because an earlier call mistook a shared place for its own, are still missing from the shared
		// limit.
		own := s.lent(b.n)
		c.giveBack(&sh.shared.state, m, loan{n: b.n - own})
		if b.n = own; s == nil {
			s = &sh.shared
		}
	}
	if s == nil {
		return
	}
	if !k.lent {
		b.n = min(b.n, c.max()) // it may have been lowered
	}
	c.giveBack(&s.state, m, b)
	sh.counts.returned++
}

// lent returns how many places are taken in s, the state of a limit that lends, and at most n. s may be nil.
func (s *slot[S]) lent(n int64) int64 {
	if s == nil {
		return 0
	}
	inFlight, _ := any(&s.state).(*int64) // the state of places
	return min(*inFlight, n)
}

func (k *keyed[S]) refusal(m moment, n, wait int64, v verdict) *spillway.Rejection {
	return k.reject.of(m, n, wait, v)
}

func (k *keyed[S]) peek(m moment, key string) State {
	sh, id := k.lock(key)
	defer sh.mu.Unlock()
	c := *k.core.Load()
	if s := sh.find(id); s != nil {
		return c.peek(&s.state, m)
	}
	if k.keys.Load() >= k.table.max {
		return c.peek(&sh.shared.state, m)
	}
	if c.idle(&sh.shared.state, m) {
		return c.peek(new(S), m)
	}
	own := c.heir(&sh.shared.state, m)
	return c.peek(&own, m)
}

// tune holds all locks while it changes the core, because the state of one core means nothing to another.
func (k *keyed[S]) tune(m moment, rule Rule) error {
	for i := range k.shards {
		k.shards[i].mu.Lock()
		defer k.shards[i].mu.Unlock()
	}
	p, err := k.plan.Load().next(rule)
	if err != nil {
		return err
	}
	old, next := *k.core.Load(), p.core.since(m.ns, nil)
	k.each(func(s *S) { next.adopt(s, m, old) })
	k.core.Store(&next)
	k.plan.Store(&p)
	return nil
}

func (k *keyed[S]) check(rule Rule) (Rule, error) {
	p, err := k.plan.Load().next(rule)
	return p.rule, err
}

func (k *keyed[S]) rule() Rule { return k.plan.Load().rule }

func (k *keyed[S]) stats() KeyedStats {
	st := KeyedStats{Keys: k.keys.Load(), MaxKeys: k.table.max}
	var sum counts
	for i := range k.shards {
		sh := &k.shards[i]
		sh.mu.Lock()
		sum.admitted += sh.counts.admitted
		sum.refused += sh.counts.refused
		sum.impossible += sh.counts.impossible
		sum.returned += sh.counts.returned
		st.Evicted += sh.tally.evicted
		st.Overflowed += sh.tally.overflowed
		sh.mu.Unlock()
	}
	st.Stats = sum.stats(&k.reject, 0)
	return st
}

func (k *keyed[S]) name() string          { return k.reject.Policy }
func (k *keyed[S]) max() int64            { return (*k.core.Load()).max() }
func (k *keyed[S]) window() time.Duration { return (*k.core.Load()).window() }
func (k *keyed[S]) calendar() bool        { return k.wall }
func (k *keyed[S]) lends() bool           { return k.lent }
