package limiter

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/rejections"
	"github.com/spillway-go/spillway/stats"
)

// An XTime is a *[rate.Limiter] of golang.org/x/time as a Policy, for services that have one already and share it with
// other code. Change its limit, wait, and reserve through the rate.Limiter itself. A [Bucket] does the same at half the
// cost, exactly, and can give tokens back.
//
// x/time treats a time before the last one as a step back, and gains tokens by it. An XTime passes it the later of the
// two times.
//
// If a later Policy refuses a request, an XTime gives back all its tokens, because x/time does not tell how many of
// them time has returned already. If the bucket was full between Admit and that refusal, these tokens exceed the limit.
// This can happen if the later Policy queues for longer than a Burst takes to fill. In that case use a Bucket, which is
// exact.
//
// It is made by [NewXTime]; the zero XTime denies everything. All methods may be called concurrently.
type XTime struct {
	limiter    *rate.Limiter
	clock      clock
	latest     atomic.Int64 // ns
	reject     refusals
	admitted   stats.Counter
	refused    stats.Counter
	impossible stats.Counter
	returned   stats.Counter
}

// NewXTime returns a Policy around the given limiter. Name is its name in rejections, metrics and header fields, in
// printable ASCII. If name is empty, it is "token bucket". The error names the invalid argument.
func NewXTime(l *rate.Limiter, name string) (*XTime, error) {
	if l == nil {
		return nil, errors.New("limiter: XTime: limiter must be set, got nil")
	}
	name, err := named("XTime", name, "token bucket")
	if err != nil {
		return nil, err
	}
	x := &XTime{limiter: l, clock: newClock(), reject: refusals{Set: rejections.New(name, rejections.Rate, true)}}
	return x, nil
}

// at returns t, or the latest time seen if that is later.
func (x *XTime) at(t time.Time) time.Time {
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
func (x *XTime) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	if x.limiter == nil {
		return 0, errZero
	}
	n := costOf(&r)
	if n < 0 || n > x.burst() {
		x.impossible.Add(1)
		return 0, x.reject.Cost(n)
	}
	now := x.at(r.Arrived)
	if x.limiter.AllowN(now, int(n)) {
		x.admitted.Add(1)
		return 0, nil
	}
	x.refused.Add(1)
	return 0, x.reject.after(x.wait(now, n))
}

// burst returns the greatest cost that can pass.
func (x *XTime) burst() int64 {
	if x.limiter.Limit() == rate.Inf {
		return math.MaxInt32 // a float64 holds it exactly
	}
	return int64(x.limiter.Burst())
}

// wait returns how long it takes from now on until n tokens are there.
func (x *XTime) wait(now time.Time, n int64) time.Duration {
	limit := float64(x.limiter.Limit())
	missing := float64(n) - x.limiter.TokensAt(now)
	if s := missing / limit; limit > 0 && s < horizon/1e9 {
		return time.Duration(math.Ceil(max(s, 0) * 1e9))
	}
	return never
}

// Done gives back what r took if it was [spillway.Refused].
func (x *XTime) Done(r spillway.Request, _ spillway.Ticket, res spillway.Result) {
	if x.limiter == nil || res.Outcome != spillway.Refused {
		return
	}
	// A cancelled reservation would give back less if other requests came since. Taking a negative number gives back
	// exactly. Any excess over the burst is cut off at the next call.
	x.limiter.AllowN(x.at(r.Arrived), int(-costOf(&r)))
	x.returned.Add(1)
}

// PeekAt returns how much could be taken at now, and takes nothing.
func (x *XTime) PeekAt(now time.Time) State {
	if x.limiter == nil {
		return State{}
	}
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

// Idle reports whether the bucket is full at now.
func (x *XTime) Idle(now time.Time) bool {
	st := x.PeekAt(now)
	return st.Remaining == st.Limit
}

// Quota returns the tokens left in the bucket at now, for the RateLimit header fields of HTTP.
func (x *XTime) Quota(now time.Time, _ spillway.Request) spillway.Quota {
	if x.limiter == nil {
		return spillway.Quota{}
	}
	st := x.PeekAt(now)
	var window time.Duration
	perSecond := float64(x.limiter.Limit())
	if s := float64(st.Limit) / perSecond; perSecond > 0 && s < horizon/1e9 {
		window = time.Duration(s * 1e9)
	}
	return spillway.Quota{Name: x.reject.Policy, Limit: st.Limit, Remaining: st.Remaining, Window: window, Reset: st.NextIn}
}

// Stats returns a snapshot of what passed through the XTime. It may be called at any time.
func (x *XTime) Stats() Stats {
	if x.limiter == nil {
		return Stats{}
	}
	s := Stats{Name: x.reject.Policy, Admitted: x.admitted.Value(), Impossible: x.impossible.Value(), Returned: x.returned.Value()}
	s.refuse(x.reject.Reason, x.refused.Value())
	return s
}

var _ spillway.Policy = (*XTime)(nil)
