package limiter

import (
	"fmt"
	"math"
	"time"

	"github.com/spillway-go/spillway"
)

// A WarmUp spaces requests, and after a pause begins slowly: it gives what is behind it, a cache or a pool of connections,
// time to get warm. While cold it lets one token through per ColdFactor / rate; with every token it gets faster, along the
// straight line of Guava's SmoothWarmingUp, until after WarmUp of steady use it passes the full Rate.
//
// As in Guava, a request pays for the one before: whatever it costs, it passes if the time that the last one costs is over.
// Nothing is saved up for bursts. Unlike in Guava, one who asks again and again instead of waiting gets warm too: the
// WarmUp cools only in pauses that are longer than the time between two tokens while cold, so that the time lost between
// two attempts does not count as one.
//
// It is made by [NewWarmUp]; the zero WarmUp denies everything. All methods may be called concurrently.
type WarmUp struct {
	limit[warmState]
}

// WarmUpOptions tune a [WarmUp]. Rate has to be set.
type WarmUpOptions struct {
	// Rate is how fast tokens pass when warm. It must have at least one token.
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

// NewWarmUp returns a cold WarmUp. The error names the field that cannot be right.
func NewWarmUp(o *WarmUpOptions) (*WarmUp, error) {
	var opts WarmUpOptions
	if o != nil {
		opts = *o
	}
	c, err := newWarming(opts)
	if err == nil {
		err = validateName("WarmUp", opts.Name)
	}
	if err != nil {
		return nil, err
	}
	if opts.Name == "" {
		opts.Name = "warm-up"
	}
	w := new(WarmUp)
	w.make(c, newRejections(opts.Name, ReasonRate, true))
	return w, nil
}

// SetLimit is [WarmUp.SetLimitAt] now.
func (w *WarmUp) SetLimit(rate Rate) error { return w.SetLimitAt(readClock(), rate) }

// SetLimitAt changes the rate from now on. It stays as warm as it is; what the last request costs stays too. If MaxCost was
// Rate.Tokens, it is that of the new rate. The error says that rate cannot be right, and then nothing has changed.
func (w *WarmUp) SetLimitAt(now time.Time, rate Rate) error {
	return w.update(now, func(old core[warmState]) (core[warmState], error) {
		opts := old.(*warming).opts //nolint:forcetypeassert // made by NewWarmUp
		opts.Rate = rate
		c, err := newWarming(opts)
		if err != nil {
			return nil, err
		}
		return c.since(max(w.clock.ns(now), w.state.last+1)), nil
	})
}

// A warming is the rule of a WarmUp. Tokens that were stored in a pause are dearer to take; how many there are says how cold
// it is. The names are those of Guava.
type warming struct {
	opts      WarmUpOptions
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

func newWarming(o WarmUpOptions) (*warming, error) {
	const kind = "WarmUp"
	if err := o.Rate.validate(kind); err != nil {
		return nil, err
	}
	factor := o.ColdFactor
	if factor == 0 {
		factor = 3
	}
	w := &warming{opts: o, maxCost: int64(o.MaxCost), stable: float64(o.Rate.Per) / float64(o.Rate.Tokens)}
	if w.maxCost == 0 {
		w.maxCost = int64(o.Rate.Tokens)
	}
	w.cold = w.stable * factor
	switch {
	case o.Rate.Tokens < 1:
		return nil, fmt.Errorf("limiter: %s: Rate.Tokens must be at least 1, got %d", kind, o.Rate.Tokens)
	case o.WarmUp < 0, o.WarmUp > horizon:
		return nil, fmt.Errorf("limiter: %s: WarmUp must be in 0..%v, got %v", kind, time.Duration(horizon), o.WarmUp)
	case !(factor >= 1 && factor <= 1e6):
		return nil, fmt.Errorf("limiter: %s: ColdFactor must be in 1..1e6, got %v", kind, o.ColdFactor)
	case w.maxCost < 1, float64(w.maxCost)*w.cold > horizon:
		return nil, fmt.Errorf("limiter: %s: MaxCost must be at least 1 and take less than %v, got %d", kind, time.Duration(horizon), w.maxCost)
	}
	w.unit = int64(float64(w.maxCost)*w.cold/(1<<30)) + 1
	w.threshold = float64(o.WarmUp) / w.stable / 2
	w.stored = w.threshold + 2*float64(o.WarmUp)/(w.stable+w.cold)
	if above := w.stored - w.threshold; above > 0 {
		w.slope = (w.cold - w.stable) / above
		w.coolDown = float64(o.WarmUp) / w.stored
	}
	if w.stored*part > math.MaxInt64/2 {
		return nil, fmt.Errorf("limiter: %s: WarmUp of %v is too long at a rate of %v", kind, o.WarmUp, o.Rate)
	}
	return w, nil
}

var _ spillway.Policy = (*WarmUp)(nil)
