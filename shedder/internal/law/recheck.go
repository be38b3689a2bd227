package law

import "math"

// A recheck measures the typical latency again if requests may have waited when it was learnt. It lets half as many in for a
// moment, as few as are in flight while none waits, and so measures a latency that is shorter, if they did wait, and never too
// short. If the answers fall with the limit, none waited: the service is slow, not full.
type recheck struct {
	due   bool    // requests may have waited
	limit float64 // while half as many are let in; else 0
	rate  float64 // of answers before, per second
}

// waited is the greatest part of a latency that is no wait.
const waited = 0.8

// step starts, judges and ends a measurement. It reports whether one is under way.
func (c *recheck) step(l *Law, r *Reading, heavy bool) bool {
	p, h, f := &l.P, &l.history, &l.flow
	typical, rate := l.latency.typical, math.Max(h.rate, f.held)
	switch {
	case !c.due || typical == 0 || !heavy || l.cpu.busy && !l.latency.guessed || f.missing:
		c.limit = 0
		return false
	case c.limit > 0:
		b, seconds, ok := h.last(math.Max(f.settled-typical, span))
		stay := b.stay()
		expected := c.rate * seconds
		enough := b.ended >= p.Expect || seconds >= reach*span
		short := l.latency.guessed && b.inside > typical/waited*b.ended // the guess is too short
		switch {
		case f.settled < 2*typical, b.ended < p.Few && expected < p.Expect*h.uneven && (ok || b.ended == 0):
			return true
		case b.ended < p.Cost*noisy*expected && expected >= p.Expect*h.uneven, // answers in proportion to the limit: none waited
			short && (b.ended >= p.Enough || enough || missing(p, b.ended, b.inside/typical, h.uneven)):
			f.opened(l, b.inside/math.Max(b.ended, 1))
			c.limit, f.settled = 0, 0
			return false
		case short:
			return true
		case b.mean() > 0.98*typical && b.ended >= p.Enough, stay > waited*typical && enough:
			c.due, c.limit, f.settled, l.latency.guessed = false, 0, 0, false
			return false
		case !enough:
			return true
		}
		l.latency.believe(stay)
		typical = stay
	case !l.little && !l.latency.guessed || f.wide > 0.1 || f.settled < f.stay || rate*math.Max(long, f.settled) < p.Expect || h.earlier > 0:
		return false
	}
	b, seconds, _ := h.last(math.Max(settle, 2*f.stay))
	c.rate = rate
	now := math.Min(rate, b.ended/seconds) // the greatest rate may be chance, and half of it no less than now
	c.limit, f.settled = math.Max(2, now*r.Mix*typical/2), 0
	return true
}
