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
// It holds at most MaxKeys keys, and takes 43 to 120 bytes for each that has a Bucket; more for limits that remember more. It
// forgets a key only when its limit is as good as new, so inventing keys or waiting gains no client a fresh
// bucket early. When there are MaxKeys others that are not, a new key shares one limit with the other new keys of its shard, of
// which there are up to 256. When there is room for it, its own limit begins with what is left of the shared one; only a
// [Concurrency] begins anew, so a key may then hold up to twice Limit until its shared places are back. So inventing keys, however
// many, neither makes it grow nor loosens anybody's limit. To limit all keys together, put another limit in the [spillway.Gate].
//
// It is made by [NewKeyed]; the zero Keyed denies everything. All methods may be called concurrently: keys are spread over
// shards with a lock each. It owns no goroutine and needs no Close.
type Keyed struct {
	clock clock
	keys  keyedLimits // nil in the zero value
}

// KeyedOptions tune a [Keyed]. Nothing has to be set.
type KeyedOptions struct {
	// MaxKeys is how many keys have a limit of their own at once, at most 2^30. If MaxKeys is 0, it is 2^20.
	MaxKeys int
}

// KeyedStats is a snapshot of a [Keyed]. Its counts are of all keys together.
type KeyedStats struct {
	Stats
	Keys       int64 // that have a limit of their own now
	MaxKeys    int64
	Overflowed int64 // requests of keys that shared a limit, since there was no room for one of their own
	Evicted    int64 // idle keys forgotten, whose limit was as good as new
}

// NewKeyed returns a Keyed that knows no keys, with a limit by the rule for each; nil options mean the defaults. The rule is not
// a [Shaper] or a [Queue]: those go into a [Registry]. The error names the field that cannot be right.
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

// Done gives back what r took: if it was [spillway.Refused], or, from a [Concurrency], however it went.
func (k *Keyed) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	if k.keys != nil && (res.Outcome == spillway.Refused || k.keys.lends()) {
		m := k.clock.moment(r.Arrived)
		k.keys.giveBack(m, r.Key, loan{n: costOf(&r), took: m.ns, stamp: uint64(t)})
	}
}

// Allow takes one token of a key now, if there is one, and reports whether there was. From a [Concurrency] it takes a place,
// which the caller gives back with Refund.
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

// AllowAt takes n tokens of a key at now if there are as many, and returns nil. Otherwise it takes none and returns the
// *[spillway.Rejection] that says when to try again, or a *[CostError] if n is negative or can never pass.
func (k *Keyed) AllowAt(now time.Time, key string, n int) error {
	_, err := k.ReserveAt(now, key, n, 0)
	return err
}

// Wait takes n tokens of a key and returns when their time has come, as [Limiter.Wait] does.
func (k *Keyed) Wait(ctx context.Context, key string, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := readClock()
	res, err := k.ReserveAt(now, key, n, patience(ctx, now))
	if err != nil {
		return forDeadline(ctx, err)
	}
	return res.sleep(ctx)
}

// ReserveAt takes n tokens of a key at now, or before they are there if they will be within maxWait, as [Limiter.ReserveAt]
// does.
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

// Refund calls [Keyed.RefundAt] for tokens taken just now.
func (k *Keyed) Refund(key string, n int) { k.RefundAt(readClock(), key, n) }

// RefundAt gives back n tokens of a key that were taken at a given time and not used; of a [Concurrency] it gives back n places,
// whenever they were taken. It does nothing if n is not positive, or if the key has no limit of its own, where time gives tokens
// back. An earlier time than the true one gives back less, and a later one may give back too many: what was reserved comes back
// by [Reservation.RefundAt], which knows.
func (k *Keyed) RefundAt(taken time.Time, key string, n int) {
	if k.keys != nil && n > 0 {
		m := k.clock.moment(taken)
		k.keys.giveBack(m, key, loan{n: int64(n), took: m.ns, stamp: noStamp})
	}
}

// PeekAt returns what a key could take at now, and takes nothing.
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

// TuneAt replaces the rule of all keys from now on, as [Limiter.TuneAt] does for one. It visits every key while no request can,
// which takes some 10 ms for a million.
func (k *Keyed) TuneAt(now time.Time, rule Rule) error {
	if k.keys == nil {
		return errors.New("limiter: Keyed: Tune: a zero Keyed has no limit to tune: make it with NewKeyed")
	}
	return k.keys.tune(k.clock.moment(now), rule)
}

// Quota returns what the key of r has left at now, for the RateLimit header fields of HTTP.
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
