package limiter

import (
	"math"
	"time"
)

// part is how many parts a stored token has. Integers can be given back without a trace, floats cannot.
const part = 1 << 20

// warmState is the zero value when it is cold and owes nothing.
type warmState struct {
	warmth int64 // parts of tokens that a cold one has stored and this one has not
	next   int64 // ns from which on a request passes
	frac   int64 // 2^-32 ns to be added to next
}

// cool brings s to now, at or after next: a pause makes it colder.
func (w *warming) cool(s *warmState, now int64) {
	if pause := float64(uint64(now) - uint64(s.next)); pause > w.cold && w.coolDown > 0 {
		s.warmth = max(s.warmth-int64(math.Min(pause/w.coolDown*part, math.MaxInt64/2)), 0)
	}
	s.next, s.frac = now, 0
}

// price returns the ns, and 2^-32 of ns, that n tokens cost if taken of them are stored ones and warmth is what it was.
func (w *warming) price(warmth, n, taken int64) (ns, frac int64) {
	cost := float64(n) * w.stable
	if above := w.stored - float64(warmth)/part - w.threshold; above > 0 {
		dear := math.Min(above, float64(taken)/part) // the rest costs no more than fresh ones
		cost += dear * (2*above - dear) * w.slope / 2
	}
	whole, rest := math.Modf(math.Min(math.Max(cost, 0), horizon))
	return int64(whole), int64(rest * (1 << 32))
}

func (w *warming) take(s *warmState, m moment, n, maxWait int64) (wait int64, stamp uint64, ok bool) {
	if s.next > m.ns {
		if wait = s.next - m.ns; wait > maxWait {
			return wait, 0, false
		}
	} else {
		w.cool(s, m.ns)
	}
	if s.next > 2*horizon+horizon/2 {
		return int64(never), 0, false
	}
	taken := min(n, int64(w.stored)+1) * part
	taken = max(min(taken, int64(w.stored*part)-s.warmth), 0)
	ns, frac := w.price(s.warmth, n, taken)
	s.warmth += taken
	s.frac += frac
	s.next += ns + s.frac>>32
	s.frac &= 1<<32 - 1
	return wait, uint64(taken), true
}

func (w *warming) giveBack(s *warmState, m moment, stamp uint64, n int64) {
	taken := int64(0) // not knowing better: all of them were cheap
	if stamp != noStamp {
		taken = min(int64(stamp), s.warmth)
	}
	s.warmth -= taken
	ns, frac := w.price(s.warmth, n, taken)
	earliest := min(s.next, m.ns)
	s.frac -= frac
	s.next -= ns - s.frac>>32 // a borrow is a negative number of whole ns
	s.frac &= 1<<32 - 1
	s.next = max(s.next, earliest)
}

func (w *warming) peek(s *warmState, m moment) State {
	if s.next > m.ns {
		d := time.Duration(s.next - m.ns)
		return State{Limit: w.maxCost, NextIn: d, FullIn: d}
	}
	return State{Limit: w.maxCost, Remaining: w.maxCost}
}

func (w *warming) idle(s *warmState, m moment) bool {
	if s.next > m.ns {
		return false
	}
	now := *s
	w.cool(&now, m.ns)
	return now.warmth == 0
}

func (w *warming) max() int64 { return w.maxCost }

func (w *warming) window() time.Duration { return w.opts.Rate.Per }

func (w *warming) follows(old core[warmState]) bool {
	_, ok := old.(*warming)
	return ok
}

// adopt keeps how warm it is as a share.
func (w *warming) adopt(s *warmState, _ moment, old core[warmState]) {
	if o := old.(*warming); o.stored > 0 { //nolint:forcetypeassert // says follows
		s.warmth = min(int64(float64(s.warmth)/o.stored*w.stored), int64(w.stored*part))
	} else {
		s.warmth = 0
	}
}
