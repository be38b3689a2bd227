package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/rejections"
	"github.com/spillway-go/spillway/stats"
)

// An XTime is the [Rule] that a *[rate.Limiter] of golang.org/x/time decides, for services that have one already and
// share it with other code. A [Bucket] does the same at half the cost, exactly.
//
// If a time is before the last one, x/time takes that as a step back of the clock and gains tokens. So the limit passes it the
// later of the two times.
//
// A request that a later Policy refuses, and a refund, give back all tokens, because x/time does not report how many of them
// have refilled already. If the bucket was full in between, these tokens exceed the limit. This can happen if the
// later Policy queues for longer than a Burst takes to fill. In that case use a Bucket, which is exact.
//
// Change the rate through the rate.Limiter itself; Tune changes nothing. A [Keyed] cannot keep an XTime for each key.
type XTime struct {
	// Limiter decides. It is required.
	Limiter *rate.Limiter
	// Name is the name of the limit in rejections, metrics and header fields, in printable ASCII. If Name is empty, it
	// is "token bucket".
	Name string
}

func (r XTime) build() (Limiter, error) {
	if r.Limiter == nil {
		return nil, errors.New("limiter: XTime: Limiter must be set, got nil")
	}
	var err error
	if r.Name, err = named("XTime", r.Name, "token bucket"); err != nil {
		return nil, err
	}
	return &xtime{rule: r, limiter: r.Limiter, clock: newClock(), reject: refusals{Set: rejections.New(r.Name, rejections.Rate, true)}}, nil
}

func (r XTime) keyed(int) (keyedLimits, error) {
	return nil, errors.New("limiter: Keyed: rule must not be an XTime, because all keys would share its Limiter: use a Registry")
}

// An xtime is the limit of an [XTime].
type xtime struct {
	rule       XTime
	limiter    *rate.Limiter
	clock      clock
	latest     atomic.Int64 // ns
	reject     refusals
	admitted   stats.Counter
	refused    stats.Counter
	impossible stats.Counter
	returned   stats.Counter
}

// at returns t, or the latest time seen if that is later.
func (x *xtime) at(t time.Time) time.Time {
	ns := x.clock.ns(t)
	for {
		latest := x.latest.Load()
		if ns <= latest {
			return x.clock.time(latest)
		}
		if x.latest.CompareAndSwap(latest, ns) {
			return x.clock.time(ns)
		}
	}
}

// Admit takes the cost of r, at its arrival. It never waits.
func (x *xtime) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	n := costOf(&r)
	if _, wait, v := x.take(r.Arrived, n, 0); v != taken {
		return 0, x.reject.of(moment{}, n, int64(wait), v)
	}
	return 0, nil
}

// take takes n tokens at now, or reserves them if they will be available within maxWait. It returns the time that it used.
func (x *xtime) take(now time.Time, n int64, maxWait time.Duration) (at time.Time, wait time.Duration, v verdict) {
	if n < 0 || n > x.burst() {
		x.impossible.Add(1)
		return at, 0, impossible
	}
	at = x.at(now)
	if x.limiter.AllowN(at, int(n)) {
		x.admitted.Add(1)
		return at, 0, taken
	}
	wait = x.wait(at, n)
	if wait <= maxWait {
		r := x.limiter.ReserveN(at, int(n))
		if wait = r.DelayFrom(at); wait <= maxWait {
			x.admitted.Add(1)
			return at, wait, taken
		}
		r.CancelAt(at) // another caller was faster
	}
	x.refused.Add(1)
	return at, wait, refused
}

func (x *xtime) Allow() bool {
	_, _, v := x.take(readClock(), 1, 0)
	return v == taken
}

func (x *xtime) AllowAt(now time.Time, n int) error {
	_, err := x.ReserveAt(now, n, 0)
	return err
}

func (x *xtime) Wait(ctx context.Context, n int) error { return waitFor(ctx, x.ReserveAt, n) }

func (x *xtime) ReserveAt(now time.Time, n int, maxWait time.Duration) (Reservation, error) {
	at, wait, v := x.take(now, int64(n), min(max(maxWait, 0), horizon))
	if v == taken {
		return Reservation{from: x, n: int64(n), at: x.clock.ns(at), delay: wait}, nil
	}
	rej := x.reject.of(moment{}, int64(n), int64(wait), v)
	if v == impossible {
		return Reservation{}, &CostError{Limit: rej.Policy, Cost: n, Max: int(x.burst()), rejection: rej}
	}
	return Reservation{}, rej
}

func (x *xtime) ns(t time.Time) int64 { return x.clock.ns(t) }

// refund takes a negative number of tokens, because a cancelled rate.Reservation would give back less after later requests.
// Any excess over the burst is cut off at the next call.
func (x *xtime) refund(now time.Time, _ Reservation, n int64) {
	x.limiter.ReserveN(x.at(now), int(-n))
	x.returned.Add(1)
}

// Release does nothing: time gives tokens back.
func (x *xtime) Release(int) {}

func (x *xtime) Rule() Rule { return x.rule }

func (x *xtime) Tune(rule Rule) error { return x.TuneAt(time.Time{}, rule) }

// TuneAt changes nothing, and fails unless the rule is the present one.
func (x *xtime) TuneAt(_ time.Time, rule Rule) error {
	_, err := x.Check(rule)
	return err
}

func (x *xtime) Check(rule Rule) (Rule, error) {
	r, ok := rule.(XTime)
	switch {
	case !ok:
		return nil, fmt.Errorf("limiter: XTime: Tune: rule must be of the same kind, got %T", rule)
	case r.Limiter != x.limiter:
		return nil, errors.New("limiter: XTime: Tune: Limiter cannot change: call its SetLimit and SetBurst")
	}
	return x.rule, sameName("XTime", x.rule.Name, cmp.Or(r.Name, x.rule.Name))
}

// burst returns the greatest cost that can pass.
func (x *xtime) burst() int64 {
	if x.limiter.Limit() == rate.Inf {
		return math.MaxInt32 // a float64 holds it exactly
	}
	return int64(x.limiter.Burst())
}

// wait returns how long it takes from now on until n tokens are there.
func (x *xtime) wait(now time.Time, n int64) time.Duration {
	limit := float64(x.limiter.Limit())
	missing := float64(n) - x.limiter.TokensAt(now)
	if s := missing / limit; limit > 0 && s < horizon/1e9 {
		return time.Duration(math.Ceil(max(s, 0) * 1e9))
	}
	return never
}

// Done gives back what r took if it was [spillway.Refused].
func (x *xtime) Done(r spillway.Request, _ spillway.Ticket, res spillway.Result) {
	if res.Outcome == spillway.Refused {
		x.refund(r.Arrived, Reservation{}, costOf(&r))
	}
}

func (x *xtime) PeekAt(now time.Time) State {
	now = x.clock.time(max(x.latest.Load(), x.clock.ns(now)))
	st := State{Limit: x.burst(), Remaining: x.burst()}
	if x.limiter.Limit() == rate.Inf {
		return st
	}
	tokens := math.Floor(x.limiter.TokensAt(now))
	if tokens < float64(st.Limit) {
		st.Remaining = max(int64(tokens), 0)
		st.NextIn, st.FullIn = x.wait(now, st.Remaining+1), x.wait(now, st.Limit)
	}
	return st
}

// Idle reports whether the bucket is full.
func (x *xtime) Idle(now time.Time) bool {
	st := x.PeekAt(now)
	return st.Remaining == st.Limit
}

func (x *xtime) Quota(now time.Time, _ spillway.Request) spillway.Quota {
	st := x.PeekAt(now)
	var window time.Duration
	perSecond := float64(x.limiter.Limit())
	if s := float64(st.Limit) / perSecond; perSecond > 0 && s < horizon/1e9 {
		window = time.Duration(s * 1e9)
	}
	return spillway.Quota{Name: x.reject.Policy, Limit: st.Limit, Remaining: st.Remaining, Window: window, Reset: st.NextIn}
}

func (x *xtime) Stats() Stats {
	s := Stats{Name: x.reject.Policy, Admitted: x.admitted.Value(), Impossible: x.impossible.Value(), Returned: x.returned.Value()}
	s.refuse(x.reject.Reason, x.refused.Value())
	return s
}
