package limiter

import (
	"fmt"
	"math"
	"time"
)

// A WarmUp is the [Rule] that spaces requests, and after a pause begins slowly: it gives what is behind it, a cache or a pool of connections,
// time to get warm. While cold it lets one token through per ColdFactor / rate; with every token it gets faster, along the
// straight line of Guava's SmoothWarmingUp, until after WarmUp of steady use it passes the full Rate.
//
// As in Guava, a request pays for the one before: whatever it costs, it passes if the time that the last one costs is over.
// Nothing is saved up for bursts. Unlike in Guava, a caller that asks again and again instead of waiting gets warm too: the
// WarmUp cools only in pauses that are longer than the time between two tokens while cold, so that the time lost between
// two attempts does not count as one.
//
// When the rate changes while the limit runs, it stays as warm as it is.
type WarmUp struct {
	// Rate is how fast tokens pass when warm. It has to be set, and must have at least one token.
	Rate Rate
	// WarmUp is how long it takes to get warm in steady use, and to get cold in a pause. If WarmUp is 0, it is always warm.
	WarmUp time.Duration
	// ColdFactor is how many times slower it is when cold, at least 1. If ColdFactor is 0, it is 3.
	ColdFactor float64
	// MaxCost is the greatest cost that can pass. If MaxCost is 0, it is Rate.Tokens.
	MaxCost int
	// Name is what rejections, metrics and header fields call the limit, in printable ASCII. If Name is empty, it is
	// "warm-up".
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
	return plan[warmState]{rule: r, kind: kind, name: r.Name, reason: ReasonRate, core: c}, err
}

func (r WarmUp) build() (Limiter, error) { return newLimit(r.plan()) }

func (r WarmUp) keyed(maxKeys int) (keyedLimits, error) { return newKeyedLimits(maxKeys, r) }

// A warming is the rule of a WarmUp. Tokens that were stored in a pause are dearer to take; how many there are says how cold
// it is. The names are those of Guava.
type warming struct {
	per       time.Duration // of the rate
	maxCost   int64
	stable    float64 // ns between two tokens when warm
	cold      float64 // ns between two tokens when cold
	threshold float64 // stored tokens from which on it is slower than stable
	stored    float64 // most stored tokens
	slope     float64 // ns per token and token, above the threshold
	coolDown  float64 // ns of a pause for a token to be stored
	unit      int64   // ns in which warmState.paid counts: the greatest price has up to 2^30
	from      int64   // ns since when this is the rate; 0 if ever since
}

// newWarming returns the rule by r, which has its defaults.
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
