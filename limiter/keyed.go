package limiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/isnil"
)

// maxMaxKeys bounds MaxKeys.
const maxMaxKeys = 1 << 30

// A Keyed keeps a limit of the same kind for each [spillway.Request.Key]: 100 per second for every tenant.
//
// It holds at most MaxKeys keys, and takes 43 to 120 bytes for each that has a Bucket; more for limits that remember
// more. It forgets a key only when the limit of the key equals a new one, so a client gains no fresh bucket by
// inventing keys or waiting. When it is full of keys in use, a new key shares one limit with the other new keys of its
// shard; there are up to 256 shards. When there is room for the key, its own limit begins with the tokens left in the
// shared one. Only a [Concurrency] begins empty, so a key may then hold up to twice Limit until its shared places are
// back. So a client that invents keys can neither make the Keyed grow nor loosen any limit. To limit all keys together,
// put another limit in the [spillway.Gate].
//
// It is made by [NewKeyed]; the zero Keyed denies everything. All methods may be called concurrently: keys are spread over
// shards with a lock each. It owns no goroutine and needs no Close.
type Keyed struct {
	clock clock
	keys  keyedLimits // nil in the zero value
}

// KeyedOptions tune a [Keyed]. No field is required.
type KeyedOptions struct {
	// MaxKeys is how many keys have a limit of their own at once, at most 2^30. If MaxKeys is 0, it is 2^20.
	MaxKeys int
}

// KeyedStats is a snapshot of a [Keyed]. Its counts are totals over all keys.
type KeyedStats struct {
	Stats
	Keys       int64 // that have a limit of their own now
	MaxKeys    int64
	Overflowed int64 // requests of keys that shared a limit, because there was no room for their own
	Evicted    int64 // forgotten idle keys, whose limit equalled a new one
}

// NewKeyed returns a Keyed that knows no keys, with a limit for each key by the rule; nil options mean the defaults.
// The rule must not be a [Shaper] or a [Queue]: those go into a [Registry]. The error names the invalid field.
func NewKeyed(rule Rule, o *KeyedOptions) (*Keyed, error) {
	var opts KeyedOptions
	if o != nil {
		opts = *o
	}
	if opts.MaxKeys == 0 {
		opts.MaxKeys = 1 << 20
	}
	if opts.MaxKeys < 1 || opts.MaxKeys > maxMaxKeys {
		return nil, fmt.Errorf("limiter: Keyed: MaxKeys must be in 1..2^30, got %d", opts.MaxKeys)
	}
	if isnil.Is(rule) {
		return nil, errors.New("limiter: Keyed: rule must be set, got nil")
	}
	keys, err := rule.keyed(opts.MaxKeys)
	if err != nil {
		return nil, err
	}
	return &Keyed{clock: newClock(), keys: keys}, nil
}

// errQueues refuses a rule that a Keyed cannot keep.
func errQueues(rule Rule) error {
	return fmt.Errorf("limiter: Keyed: rule must not have requests wait, got %T: use a Registry", rule)
}

// Admit takes the cost of r from the limit of its key, at its arrival. It never waits.
func (k *Keyed) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	m, n := k.clock.moment(r.Arrived), costOf(&r)
	if k.keys == nil {
		return 0, errZero
	}
	wait, stamp, v := k.keys.take(m, r.Key, n, 0)
	if v == taken {
		return spillway.Ticket(stamp), nil
	}
	return 0, k.keys.refusal(m, n, wait, v)
}

// Done gives back the tokens of r if it was [spillway.Refused]. For a [Concurrency] it gives back the places whatever
// the outcome.
func (k *Keyed) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	if k.keys != nil && (res.Outcome == spillway.Refused || k.keys.lends()) {
		m := k.clock.moment(r.Arrived)
		k.keys.giveBack(m, r.Key, loan{n: costOf(&r), took: m.ns, stamp: uint64(t)})
	}
}

// Allow takes one token of a key now, if there is one, and reports whether it took one. From a [Concurrency] it takes a
// place, which the caller gives back with RefundAt.
func (k *Keyed) Allow(key string) bool {
	if k.keys == nil {
		return false
	}
	m := moment{ns: k.clock.now()}
	if k.keys.calendar() {
		m = k.clock.moment(readClock())
	}
	_, _, v := k.keys.take(m, key, 1, 0)
	return v == taken
}

// AllowAt takes n tokens of a key at now if there are enough, and returns nil. Otherwise it takes none and returns the
// *[spillway.Rejection] that says when to try again, or a *[CostError] if n is negative or can never pass.
func (k *Keyed) AllowAt(now time.Time, key string, n int) error {
	_, err := k.ReserveAt(now, key, n, 0)
	return err
}

// Wait takes n tokens of a key and returns when their time has come, as [Limiter.Wait] does.
func (k *Keyed) Wait(ctx context.Context, key string, n int) error {
	return waitFor(ctx, func(now time.Time, n int, maxWait time.Duration) (Reservation, error) {
		return k.ReserveAt(now, key, n, maxWait)
	}, n)
}

// ReserveAt takes n tokens of a key at now, or reserves them if they will be available within maxWait, like
// [Limiter.ReserveAt].
func (k *Keyed) ReserveAt(now time.Time, key string, n int, maxWait time.Duration) (Reservation, error) {
	if k.keys == nil {
		return Reservation{}, errZero
	}
	m := k.clock.moment(now)
	wait, stamp, v := k.keys.take(m, key, int64(n), int64(min(max(maxWait, 0), horizon)))
	if v == taken {
		return Reservation{from: k, key: key, n: int64(n), at: m.ns, stamp: stamp, delay: time.Duration(wait)}, nil
	}
	rej := k.keys.refusal(m, int64(n), wait, v)
	if v == impossible {
		limit := int(min(k.keys.max(), math.MaxInt))
		return Reservation{}, &CostError{Limit: rej.Policy, Cost: n, Max: limit, rejection: rej}
	}
	return Reservation{}, rej
}

func (k *Keyed) ns(t time.Time) int64 { return k.clock.ns(t) }

func (k *Keyed) refund(now time.Time, r Reservation, n int64) {
	k.keys.giveBack(k.clock.moment(now), r.key, r.loan(n))
}

// RefundAt gives back n tokens of a key that were taken at a given time and not used. For a [Concurrency] it gives back
// n places, whenever they were taken. It does nothing if n is not positive, or if time gives tokens back and the key
// has no limit of its own. If the given time is too early, fewer tokens come back; if it is too late, too many may come
// back. For reserved tokens use [Reservation.RefundAt], which knows the time.
func (k *Keyed) RefundAt(taken time.Time, key string, n int) {
	if k.keys != nil && n > 0 {
		m := k.clock.moment(taken)
		k.keys.giveBack(m, key, loan{n: int64(n), took: m.ns, stamp: noStamp})
	}
}

// PeekAt returns how much a key could take at now, and takes nothing.
func (k *Keyed) PeekAt(now time.Time, key string) State {
	if k.keys == nil {
		return State{}
	}
	return k.keys.peek(k.clock.moment(now), key)
}

// Rule returns the rule of each key, with every default filled in; nil in the zero Keyed.
func (k *Keyed) Rule() Rule {
	if k.keys == nil {
		return nil
	}
	return k.keys.rule()
}

// Tune calls [Keyed.TuneAt] with the current time.
func (k *Keyed) Tune(rule Rule) error { return k.TuneAt(readClock(), rule) }

// TuneAt replaces the rule of all keys from now on, as [Limiter.TuneAt] does for one. It visits every key while
// requests wait, which takes about 10 ms for a million keys.
func (k *Keyed) TuneAt(now time.Time, rule Rule) error {
	if k.keys == nil {
		return errZeroTune
	}
	return k.keys.tune(k.clock.moment(now), rule)
}

// Check returns the rule that Tune would put in force, with every default filled in, or the error of Tune. It changes
// nothing.
func (k *Keyed) Check(rule Rule) (Rule, error) {
	if k.keys == nil {
		return nil, errZeroTune
	}
	return k.keys.check(rule)
}

var errZeroTune = errors.New("limiter: Keyed: Tune: a zero Keyed has no limit to tune: make it with NewKeyed")

// Quota returns the tokens left for the key of r at now, for the RateLimit header fields of HTTP.
func (k *Keyed) Quota(now time.Time, r spillway.Request) spillway.Quota {
	if k.keys == nil {
		return spillway.Quota{}
	}
	s := k.PeekAt(now, r.Key)
	return spillway.Quota{Name: k.keys.name(), Limit: s.Limit, Remaining: s.Remaining, Window: k.keys.window(), Reset: s.NextIn}
}

// Stats returns a snapshot. It visits every shard, so it is for metrics rather than for requests.
func (k *Keyed) Stats() KeyedStats {
	if k.keys == nil {
		return KeyedStats{}
	}
	return k.keys.stats()
}

var _ spillway.Policy = (*Keyed)(nil)
