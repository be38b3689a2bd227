package limiter

import (
	"fmt"
	"math/bits"
	"time"
)

// A gcra is the Generic Cell Rate Algorithm (ITU-T I.371) in integers. It measures what was taken in ticks, of which a
// token has b and each ns that passes takes a away, where a/b is the rate in its lowest terms. Nothing is ever rounded.
//
// Written with a level instead of the usual theoretical arrival time, it is a leaky bucket that holds burst tokens; read
// from the other side, it is a token bucket of that size. Both are the same rule.
type gcra struct {
	rate  Rate
	burst int64
	a, b  int64 // tokens per ns as a fraction; a is 0 if there are never any
	full  int64 // burst in ticks
	drain int64 // ns after which every level is 0
}

// gcraState is the zero value if nobody has taken anything.
type gcraState struct {
	level int64 // ticks taken, at most maxLevel
	last  int64 // ns up to which level is drained; time never runs backwards from here
}

// maxLevel bounds the ticks owed, reservations included, so that adding a cost cannot overflow.
const maxLevel = 1 << 61

func newGCRA(limit string, rate Rate, burst int, burstName string) (*gcra, error) {
	if err := rate.validate(limit); err != nil {
		return nil, err
	}
	if burst == 0 {
		burst = max(rate.Tokens, 1)
	}
	if burst < 0 {
		return nil, fmt.Errorf("limiter: %s: %s must be at least 1, got %d", limit, burstName, burst)
	}
	g := &gcra{rate: rate, burst: int64(burst), drain: int64(never)}
	g.a, g.b = rate.fraction()
	if g.a == 0 {
		g.b = 1
	}
	hi, full := bits.Mul64(uint64(burst), uint64(g.b))
	if hi != 0 || full > maxLevel {
		return nil, fmt.Errorf("limiter: %s: %s of %d tokens is too much at a rate of %v", limit, burstName, burst, rate)
	}
	g.full = int64(full)
	if g.a > 0 {
		g.drain = maxLevel/g.a + 1
	}
	return g, nil
}

// levelAt returns what is left of the level at ns, and up to when that is so.
func (g *gcra) levelAt(s *gcraState, ns int64) (level, last int64) {
	elapsed := ns - s.last
	if elapsed <= 0 {
		return s.level, s.last
	}
	if elapsed >= g.drain {
		return 0, ns
	}
	return max(s.level-elapsed*g.a, 0), ns
}

// waitFor returns how long it takes to drain ticks.
func (g *gcra) waitFor(ticks int64) int64 {
	switch {
	case ticks <= 0:
		return 0
	case g.a == 1: // most rates divide a second, and a division is dear
		return ticks
	case g.a == 0:
		return int64(never)
	}
	wait := ticks / g.a
	if wait*g.a != ticks {
		wait++
	}
	return wait
}

func (g *gcra) take(s *gcraState, m moment, n, maxWait int64) (wait int64, stamp uint64, ok bool) {
	level, last := g.levelAt(s, m.ns)
	level += n * g.b
	if over := level - g.full; over > 0 {
		if wait = g.waitFor(over) + max(last-m.ns, 0); wait < 0 {
			wait = int64(never)
		}
		if wait > maxWait || level > maxLevel {
			return wait, 0, false
		}
	}
	s.level, s.last = level, last
	return wait, g.stamp(level, last), true
}

// stamp says when a level will be drained, which is up to when what was taken to reach it can be given back.
func (g *gcra) stamp(level, last int64) uint64 { return uint64(last + min(g.waitFor(level), horizon)) }

// giveBack returns n tokens, or what time has not already returned of them.
func (g *gcra) giveBack(s *gcraState, m moment, stamp uint64, n int64) {
	s.level, s.last = g.levelAt(s, m.ns)
	ticks := n * g.b
	if stamp != noStamp && g.a > 0 {
		if left := int64(stamp) - s.last; left <= 0 {
			ticks = 0
		} else if left < g.drain {
			ticks = min(ticks, left*g.a)
		}
	}
	s.level = max(s.level-ticks, 0)
}

func (g *gcra) peek(s *gcraState, m moment) State {
	level, last := g.levelAt(s, m.ns)
	st := State{Limit: g.burst, Remaining: max(g.full-level, 0) / g.b}
	if level > 0 {
		late := max(last-m.ns, 0)
		st.NextIn = sum(g.waitFor(level-(g.full-(st.Remaining+1)*g.b)), late)
		st.FullIn = sum(g.waitFor(level), late)
	}
	return st
}

func sum(a, b int64) time.Duration { return time.Duration(min(uint64(a)+uint64(b), uint64(never))) }

func (g *gcra) idle(s *gcraState, m moment) bool {
	level, _ := g.levelAt(s, m.ns)
	return level == 0
}

func (g *gcra) max() int64 { return g.burst }

func (g *gcra) follows(old core[gcraState]) bool {
	_, ok := old.(*gcra)
	return ok
}

// adopt turns a state of old into one of g: as many tokens stay taken as were.
func (g *gcra) adopt(s *gcraState, m moment, old core[gcraState]) {
	o := old.(*gcra) //nolint:forcetypeassert // says follows
	s.level, s.last = o.levelAt(s, m.ns)
	hi, lo := bits.Mul64(uint64(s.level), uint64(g.b))
	if hi >= uint64(o.b) {
		s.level = maxLevel
		return
	}
	q, rem := bits.Div64(hi, lo, uint64(o.b))
	if rem > 0 {
		q++
	}
	s.level = int64(min(q, maxLevel))
}

// window returns how long it takes to fill an empty bucket.
func (g *gcra) window() time.Duration { return time.Duration(g.waitFor(g.full)) }
