package limiter

import (
	"fmt"
	"math"
	"time"

	"github.com/spillway-go/spillway/internal/rejections"
	"github.com/spillway-go/spillway/internal/splitmix"
)

// A WarmUp is the [Rule] that spaces requests, and after a pause begins slowly: it gives the backend, such as a cache
// or a connection pool, time to get warm. While cold, it lets one token through per ColdFactor / rate. It gets faster
// with every token, along the straight line of Guava's SmoothWarmingUp. After WarmUp of steady use it passes the full
// Rate.
//
// As in Guava, a request waits for the cost of the request before it, not for its own: it passes if the time for the
// last cost is over. Nothing is saved up for bursts. Unlike in Guava, a caller that retries instead of waiting gets
// warm too. The WarmUp cools only in pauses longer than the time between two tokens while cold, so the time between two
// attempts does not count as a pause.
//
// When the rate changes while the limit runs, the warmth stays the same.
type WarmUp struct {
	// Rate is how fast tokens pass when warm. It is required, and must have at least one token.
	Rate Rate
	// WarmUp is how long it takes to get warm in steady use, and to get cold in a pause. If WarmUp is 0, it is always warm.
	WarmUp time.Duration
	// ColdFactor is how many times slower it is when cold, at least 1. If ColdFactor is 0, it is 3.
	ColdFactor float64
	// MaxCost is the greatest cost that can pass. If MaxCost is 0, it is Rate.Tokens.
	MaxCost int
	// Name is the name of the limit in rejections, metrics and header fields, in printable ASCII. If Name is empty, it
	// is "warm-up".
	Name string
}

func (r WarmUp) plan() (p plan[warmState], err error) {
	const kind = "WarmUp"
	if r.ColdFactor == 0 {
		r.ColdFactor = 3
	}
	if r.MaxCost == 0 {
		r.MaxCost = r.Rate.Tokens
	}
	c, err := newWarming(kind, r)
	if err != nil {
		return p, err
	}
	r.Name, err = named(kind, r.Name, "warm-up")
	return plan[warmState]{rule: r, kind: kind, name: r.Name, reason: rejections.Rate, core: c}, err
}

func (r WarmUp) build() (Limiter, error) { return newLimit(r.plan()) }

func (r WarmUp) keyed(maxKeys int) (keyedLimits, error) { return newKeyedLimits(maxKeys, r) }

// A warming is the rule of a WarmUp. Tokens stored in a pause cost more time, and their number says how cold the limit
// is. The names come from Guava.
type warming struct {
	per       time.Duration // of the rate
	maxCost   int64
	stable    float64 // ns between two tokens when warm
	cold      float64 // ns between two tokens when cold
	threshold float64 // number of stored tokens above which it is slower than stable
	stored    float64 // most stored tokens
	slope     float64 // ns per token and token, above the threshold
	coolDown  float64 // ns of a pause for a token to be stored
	unit      int64   // unit of warmState.paid in ns: the greatest price is up to 2^30 units
	from      int64   // ns at which this rate began; 0 if it never changed
}

// newWarming returns the rule for r, whose defaults are filled in.
func newWarming(kind string, r WarmUp) (*warming, error) {
	if err := r.Rate.validate(kind); err != nil {
		return nil, err
	}
	w := &warming{per: r.Rate.Per, maxCost: int64(r.MaxCost), stable: float64(r.Rate.Per) / float64(r.Rate.Tokens)}
	w.cold = w.stable * r.ColdFactor
	switch {
	case r.Rate.Tokens < 1:
		return nil, fmt.Errorf("limiter: %s: Rate.Tokens must be at least 1, got %d", kind, r.Rate.Tokens)
	case r.WarmUp < 0, r.WarmUp > horizon:
		return nil, fmt.Errorf("limiter: %s: WarmUp must be in 0..%v, got %v", kind, time.Duration(horizon), r.WarmUp)
	case !(r.ColdFactor >= 1 && r.ColdFactor <= 1e6):
		return nil, fmt.Errorf("limiter: %s: ColdFactor must be in 1..1e6, got %v", kind, r.ColdFactor)
	case w.maxCost < 1, float64(w.maxCost)*w.cold > horizon:
		return nil, fmt.Errorf("limiter: %s: MaxCost must be at least 1 and take less than %v, got %d", kind, time.Duration(horizon), w.maxCost)
	}
	w.unit = int64(float64(w.maxCost)*w.cold/(1<<30)) + 1
	w.threshold = float64(r.WarmUp) / w.stable / 2
	w.stored = w.threshold + 2*float64(r.WarmUp)/(w.stable+w.cold)
	if above := w.stored - w.threshold; above > 0 {
		w.slope = (w.cold - w.stable) / above
		w.coolDown = float64(r.WarmUp) / w.stored
	}
	if w.stored*part > math.MaxInt64/2 {
		return nil, fmt.Errorf("limiter: %s: WarmUp of %v is too long at a rate of %v", kind, r.WarmUp, r.Rate)
	}
	return w, nil
}

// part is the number of parts of a stored token. Integers can be given back exactly, floats cannot.
const part = 1 << 20

// warmState is the zero value when it is cold and owes nothing.
type warmState struct {
	warmth int64 // parts of stored tokens missing, compared with a cold limit
	next   int64 // ns from which on a request passes
	frac   int64 // 2^-32 ns to be added to next
	last   int64 // the greatest ns at which something was taken
	due    int64 // latest ns until which a caller may be waiting
	// paid counts all prices ever paid, in units modulo 2^54, given back or not, plus one unit for each giveBack. So a
	// stamp shows which requests came later.
	paid uint64
}

const (
	shareBits = 8 // of a stamp: the share of stored tokens
	shareMask = 1<<shareBits - 1
	paidMask  = 1<<54 - 1
)

// cool brings s to now, at or after next: a pause makes it colder.
func (w *warming) cool(s *warmState, now int64) {
	if pause := float64(uint64(now) - uint64(s.next)); pause > w.cold && w.coolDown > 0 {
		s.warmth = max(s.warmth-int64(math.Min(pause/w.coolDown*part, math.MaxInt64/2)), 0)
	}
	s.next, s.frac = now, 0
}

// price returns the ns, and the 2^-32 fractions of a ns, that n tokens cost at the given warmth, if taken of them are
// stored tokens.
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
	most := w.storedIn(n)
	taken := max(min(most, int64(w.stored*part)-s.warmth), 0)
	ns, frac := w.price(s.warmth, n, taken)
	s.warmth += taken
	s.frac += frac
	s.next += ns + s.frac>>32
	s.frac &= 1<<32 - 1
	s.last = max(s.last, m.ns)
	if wait > 0 {
		s.due = m.ns + wait
	}
	s.paid = (s.paid + uint64(ns/w.unit) + 1) & paidMask
	share := uint64(math.Ceil(float64(taken) / float64(most) * shareMask)) // a larger price, because it is colder when they come back
	return wait, s.paid<<shareBits | share, true
}

// storedIn returns the parts of stored tokens in n tokens while it is cold.
func (w *warming) storedIn(n int64) int64 { return min(n, int64(w.stored)+1) * part }

// giveBack returns tokens like a gcra, by the same two bounds: the debt minus all later prices, and the price minus the
// time since the tokens were taken. Tokens taken at another rate do not come back, because their price is not known.
func (w *warming) giveBack(s *warmState, m moment, l loan) {
	now := max(m.ns, s.last)
	later := (s.paid - l.stamp>>shareBits) & paidMask
	if l.took < w.from || now < s.due && (later > 0 || l.rest > 0) {
		return
	}
	if l.stamp == noStamp {
		l.stamp, later = 0, paidMask // its temperature is unknown
	}
	taken := int64(float64(w.storedIn(l.n)) * float64(l.stamp&shareMask) / shareMask)
	taken = min(taken, s.warmth)
	s.warmth -= taken
	if s.paid = (s.paid + 1) & paidMask; later > 0 || l.stamp&shareMask != shareMask {
		taken = 0 // it cost at least the price of a warm token; the rest is unknown
	}
	ns, frac := w.price(s.warmth, l.n, taken)
	owed := max(s.next-now, 0)
	still := ns - (now - l.took)
	if later <= uint64(owed/w.unit) {
		still = max(still, owed-int64(later)*w.unit)
	}
	if still = min(still, owed); still < ns {
		s.next -= max(still, 0)
		return
	}
	earliest := min(s.next, now)
	s.frac -= frac
	s.next -= ns - s.frac>>32 // a borrow is a negative number of whole ns
	s.frac &= 1<<32 - 1
	s.next = max(s.next, earliest)
}

// since returns the rule for tokens taken from an instant on.
func (w *warming) since(ns int64, s *warmState) core[warmState] {
	next := *w
	if next.from = ns; s != nil {
		next.from = max(ns, s.last+1)
	}
	return &next
}

func (w *warming) heir(s *warmState, m moment) warmState {
	next := *s
	next.paid = splitmix.Mix(uint64(m.ns)) & paidMask
	return next
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

func (w *warming) window() time.Duration { return w.per }

func (w *warming) follows(core[warmState]) error { return nil }

// adopt keeps how warm it is as a share.
func (w *warming) adopt(s *warmState, _ moment, old core[warmState]) {
	if o := old.(*warming); o.stored > 0 { //nolint:forcetypeassert // the only core of its state
		s.warmth = min(int64(float64(s.warmth)/o.stored*w.stored), int64(w.stored*part))
	} else {
		s.warmth = 0
	}
}
