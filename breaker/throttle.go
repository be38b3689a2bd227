package breaker

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/splitmix"
	"github.com/spillway-go/spillway/stats"
)

// reasonThrottled is the reason of every refusal.
const reasonThrottled = "throttled"

// A Throttle is a [spillway.Policy] that refuses a request with probability
//
//	max(0, (requests - K × accepts) / (requests + 1))
//
// over the last two minutes, where requests counts all requests, including the refused ones, and accepts counts the
// successful ones. This is the client-side throttling of "Site Reliability Engineering", chapter "Handling Overload".
// The formula alone may take minutes to recover, and at a high rate it never does. So [ThrottleOptions] adds four
// settings: MinRequests, MaxRefusal, ProbeEvery and RecoverAfter.
//
// A request counts when it is admitted, so calls that hang count. Calls that began less than a second or two ago do not
// count. Otherwise a new throttle would refuse all requests before the first answer.
//
// A Throttle is made by [NewThrottle]; the zero Throttle denies everything. It is safe for concurrent use, owns no
// goroutine and needs no Close. Requests take no lock, with two exceptions: the one that opens a bucket, and those
// Ignored or Refused after the bucket in which they began.
type Throttle struct {
	base      base
	opts      atomic.Pointer[ThrottleOptions]
	rejection spillway.Rejection
	trail     trail
	active    atomic.Bool  // the odds are not 0
	streak    atomic.Int64 // successes in a row while active
	streakAt  atomic.Int64 // instant of the first of them
	lastCall  atomic.Int64 // instant of the last admitted call while active
	gen       atomic.Uint32
	inFlight  stats.Counter

	refused    stats.Counter
	probes     atomic.Int64
	recoveries atomic.Int64
	stale      atomic.Int64
	mu         sync.Mutex // guards opts against concurrent Tune
}

// NewThrottle returns a Throttle with the given options; nil means the defaults. It returns an error that names the
// invalid field.
func NewThrottle(o *ThrottleOptions) (*Throttle, error) {
	if o == nil {
		o = &ThrottleOptions{}
	}
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if opts.Seed == 0 {
		opts.Seed = rand.Uint64()
	}
	t := &Throttle{rejection: spillway.Rejection{Policy: opts.Name, Reason: reasonThrottled}}
	t.trail.init(instant(opts.Window)/instant(opts.Buckets), int64(opts.Buckets))
	t.trail.chance.Store(opts.Seed)
	t.opts.Store(&opts)
	t.lastCall.Store(int64(longAgo))
	return t, nil
}

// Admit refuses r with the probability stated at [Throttle], by a shared *[spillway.Rejection]. Its Reason is "throttled", and
// its RetryAfter is 0: the
// next request may be let through.
func (t *Throttle) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	o := t.opts.Load()
	if o == nil {
		return 0, errZero
	}
	now := t.base.instant(r.Arrived)
	slot := t.trail.slot(now)
	if now < instant(slot-t.trail.slots)*t.trail.span && t.trail.rewind(now) {
		t.restart()
		slot = t.trail.slot(now)
	}
	n := t.trail.ask()
	if n >= int64(o.MinRequests) {
		if odds := t.odds(o, n); odds > 0 {
			if !t.mayPass(o, now, odds) {
				t.refused.Add(1)
				return 0, &t.rejection
			}
		} else if t.active.Load() {
			t.active.Store(false)
			t.streak.Store(0)
		}
	}
	t.inFlight.Add(1)
	return ticket(t.gen.Load(), slot), nil
}

// odds returns the probability with which the next request after n is refused.
func (t *Throttle) odds(o *ThrottleOptions, n int64) float64 {
	a := t.trail.accepted()
	if refusalOdds(n, a, o.K) == 0 {
		return 0
	}
	n -= min(max(t.inFlight.Value(), 0), t.trail.recent())
	if n < int64(o.MinRequests) {
		return 0
	}
	return min(refusalOdds(n, a, o.K), o.MaxRefusal)
}

// refusalOdds is the formula of the book.
func refusalOdds(requests, accepts int64, k float64) float64 {
	return max(0, (float64(requests)-k*float64(accepts))/float64(requests+1))
}

// mayPass throws the dice.
func (t *Throttle) mayPass(o *ThrottleOptions, now instant, odds float64) bool {
	if !t.active.Load() {
		t.active.Store(true)
	}
	last := t.lastCall.Load()
	switch {
	case t.random() >= odds:
		if int64(now) > last {
			t.lastCall.CompareAndSwap(last, int64(now))
		}
		return true
	case o.ProbeEvery != Off && now >= instant(last).after(o.ProbeEvery) && t.lastCall.CompareAndSwap(last, int64(now)):
		t.probes.Add(1)
		return true
	}
	return false
}

// random returns the next number of a SplitMix64 sequence, in [0, 1). It is one atomic addition: no lock, no allocation.
func (t *Throttle) random() float64 {
	return float64(splitmix.Mix(t.trail.chance.Add(splitmix.Gamma))>>11) / (1 << 53)
}

// Done takes the outcome of a request that Admit let through.
func (t *Throttle) Done(r spillway.Request, tk spillway.Ticket, res spillway.Result) {
	if t.opts.Load() == nil {
		return
	}
	t.inFlight.Add(-1)
	same := uint32(tk>>genShift)&ticketGens == t.gen.Load()
	switch res.Outcome {
	case spillway.Success:
		t.succeeded(t.base.instant(r.Arrived).after(res.Latency), same)
	case spillway.Failure, spillway.Dropped:
		if t.active.Load() && t.streak.Load() != 0 {
			t.streak.Store(0)
		}
	default:
		if same {
			t.trail.takeBack(tk)
		}
	}
}

func (t *Throttle) succeeded(now instant, same bool) {
	if !same { // its request is forgotten, so counting the success would give more accepts than requests
		t.stale.Add(1)
		return
	}
	t.trail.slot(now)
	t.trail.accept()
	if !t.active.Load() {
		return
	}
	o := t.opts.Load()
	if o.RecoverAfter == Off {
		return
	}
	n := t.streak.Add(1)
	if n == 1 {
		t.streakAt.Store(int64(now))
	}
	if n >= int64(o.RecoverAfter) && now >= instant(t.streakAt.Load()).after(recoverSpan) {
		t.recover()
	}
}

// recoverSpan is how long all calls must succeed before a Throttle forgets the past. An overloaded dependency can also
// give many successes in a row, at the beginning of each of its own intervals.
const recoverSpan = time.Second

// recover forgets the past, unless another goroutine has just done so.
func (t *Throttle) recover() {
	if !t.active.CompareAndSwap(true, false) {
		return
	}
	t.trail.forget()
	t.restart()
	t.recoveries.Add(1)
}

// restart resets the state that belonged to the old contents of the trail.
func (t *Throttle) restart() {
	t.nextGen()
	t.streak.Store(0)
	t.lastCall.Store(int64(longAgo))
}

func (t *Throttle) nextGen() {
	if g := t.gen.Add(1); g >= maxGen {
		t.gen.CompareAndSwap(g, 0)
	}
}

// Options returns the current options, with every default filled in. Change them and pass them to [Throttle.Tune]. The
// zero Throttle has none.
func (t *Throttle) Options() ThrottleOptions {
	if o := t.opts.Load(); o != nil {
		return *o
	}
	return ThrottleOptions{}
}

// Tune replaces all options while requests go on: a zero field means its default, as in [NewThrottle]. The window stays.
// Name, Window, Buckets and Seed cannot change: each must be zero or the one given to NewThrottle. Tune returns an error that names
// the invalid field, and then changes nothing.
func (t *Throttle) Tune(o ThrottleOptions) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	opts, err := t.Check(o)
	if err != nil {
		return err
	}
	t.opts.Store(&opts)
	return nil
}

// Check returns the options that Tune would put in force, with every default filled in, or the error of Tune. It changes
// nothing.
func (t *Throttle) Check(o ThrottleOptions) (ThrottleOptions, error) {
	old := t.opts.Load()
	if old == nil {
		return o, errUnmade
	}
	if err := o.keep(old); err != nil {
		return o, err
	}
	return o.withDefaults()
}

// ThrottleStats is a snapshot of the state of a [Throttle]. The figures are read one after the other while requests go
// on.
type ThrottleStats struct {
	Name     string  // ThrottleOptions.Name
	Requests int64   // in the window, refused ones included
	Accepts  int64   // in the window
	Odds     float64 // with which the next request is refused
	InFlight int64   // let through and not ended

	// Since the Throttle was made:
	Refused    int64 // requests refused: the sum of ByReason
	ByReason   []spillway.Refusal
	Probes     int64 // let through because of ProbeEvery
	Recoveries int64 // by RecoverAfter
	Stale      int64 // successes of requests from before a recovery
}

// Stats returns a snapshot as of now.
func (t *Throttle) Stats() ThrottleStats { return t.StatsAt(time.Now()) }

// StatsAt is [Throttle.Stats] at a given time. It changes nothing.
func (t *Throttle) StatsAt(now time.Time) ThrottleStats {
	s := ThrottleStats{
		Name:     t.rejection.Policy,
		InFlight: t.inFlight.Value(), Refused: t.refused.Value(),
		Probes: t.probes.Load(), Recoveries: t.recoveries.Load(), Stale: t.stale.Load(),
	}
	if s.Refused > 0 {
		s.ByReason = []spillway.Refusal{{Policy: s.Name, Reason: reasonThrottled, Count: s.Refused}}
	}
	if t.base.time.Load() == nil {
		return s
	}
	s.Requests, s.Accepts = t.trail.sum(t.base.instant(now))
	o := t.opts.Load()
	if pending := min(max(s.InFlight, 0), t.trail.recent()); s.Requests-pending >= int64(o.MinRequests) {
		s.Odds = min(refusalOdds(s.Requests-pending, s.Accepts, o.K), o.MaxRefusal)
	}
	return s
}
