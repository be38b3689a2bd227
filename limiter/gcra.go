package limiter

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/spillway-go/spillway/internal/splitmix"
)

// A gcra is the Generic Cell Rate Algorithm (ITU-T I.371) in integers. It measures taken tokens in ticks. A token is b
// ticks, and each ns that passes takes a ticks away, where a/b is the rate in its lowest terms. Nothing is ever
// rounded.
//
// Written with a level instead of the usual theoretical arrival time, it is a leaky bucket that holds burst tokens; read
// from the other side, it is a token bucket of that size. Both are the same rule.
type gcra struct {
	rate  Rate
	burst int64
	a, b  int64 // tokens per ns as a fraction; a is 0 if no tokens ever come back
	full  int64 // burst in ticks
	drain int64 // ns after which every level is 0
	from  int64 // ns at which this rate began; 0 if it never changed
}

// gcraState is the zero value until the first token is taken.
type gcraState struct {
	level int64 // ticks taken, at most maxLevel
	last  int64 // ns up to which level is drained; time never runs backwards from here
	// taken counts all tokens ever taken, modulo 2^62, given back or not. It gives each token its place in the order.
	taken uint64
}

// placeMask keeps the two uppermost bits of a stamp free.
const placeMask = 1<<62 - 1

// maxLevel bounds the ticks owed, reservations included, so that adding a cost cannot overflow.
const maxLevel = 1 << 61

// newGCRA returns the rule of a limit, or an error that names burst as burstName.
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
	if hi != 0 || full > maxLevel || int64(burst) > maxLimit {
		return nil, fmt.Errorf("limiter: %s: %s of %d tokens is too much at a rate of %v", limit, burstName, burst, rate)
	}
	g.full = int64(full)
	if g.a > 0 {
		g.drain = maxLevel/g.a + 1
	}
	return g, nil
}

// levelAt returns the level at ns, and the time up to which it is drained.
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
	case g.a == 1: // most rates divide a second, and a division is slow
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
	return wait, s.count(n), true
}

// count counts n tokens that are taken, and returns the place of the last one.
func (s *gcraState) count(n int64) (stamp uint64) {
	s.taken = (s.taken + uint64(n)) & placeMask
	return s.taken
}

// giveBack returns the tokens that have not come back with time. While the level is above full, waiting callers already know
// their times, so only the last in the queue can leave.
func (g *gcra) giveBack(s *gcraState, m moment, l loan) {
	switch s.level, s.last = g.levelAt(s, m.ns); {
	case s.level <= g.full:
		g.pourBack(s, l)
	case s.taken == l.stamp && l.rest == 0:
		s.level -= min(l.n*g.b, s.level)
		s.taken = (s.taken - uint64(l.n)) & placeMask
	}
}

// pourBack gives back a loan while no request waits. The level leaks from the oldest token on. Two lower bounds show how
// much of the loan is left, whatever was given back since and in whatever order. First, the level minus all
// later tokens belongs to the loan or to older tokens; if older tokens are left, the loan is whole. Second, the loan
// cannot have lost more than all that leaked since it was taken.
func (g *gcra) pourBack(s *gcraState, l loan) {
	still, ticks := int64(0), l.n*g.b
	later := (s.taken - l.stamp) & placeMask
	if l.stamp != noStamp && later <= uint64(s.level/g.b) {
		still = s.level - int64(later)*g.b
	}
	if elapsed := s.last - l.took; l.took >= g.from && elapsed >= 0 && elapsed < g.drain {
		still = max(still, ticks-elapsed*g.a)
	}
	s.level = max(s.level-min(still, ticks), 0)
}

// since returns the rule for tokens taken from an instant on. It does not know what leaked before.
func (g *gcra) since(ns int64, s *gcraState) core[gcraState] {
	next := *g
	if next.from = ns; s != nil {
		next.from = max(ns, s.last)
	}
	return &next
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

func (g *gcra) follows(core[gcraState]) error { return nil }

// adopt turns a state of old into a state of g. The number of taken tokens stays the same.
func (g *gcra) adopt(s *gcraState, m moment, old core[gcraState]) {
	o := old.(*gcra) //nolint:forcetypeassert // the only core of its state
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

func (g *gcra) heir(s *gcraState, m moment) gcraState {
	next := *s
	next.taken = splitmix.Mix(uint64(m.ns)) & placeMask
	return next
}

// window returns how long it takes to fill an empty bucket.
func (g *gcra) window() time.Duration { return time.Duration(g.waitFor(g.full)) }
