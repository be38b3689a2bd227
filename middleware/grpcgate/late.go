package grpcgate

import (
	"context"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/deadline"
	"github.com/spillway-go/spillway/stats"
)

// latencies records how long the calls to each method take.
type latencies struct {
	of *deadline.Estimator
}

func newLatencies(minBudget time.Duration) latencies {
	return latencies{of: spillway.Must(deadline.New(&deadline.Options{MinBudget: minBudget}))}
}

// unfair reports whether the given time was too short for a call to method, so that its outcome says nothing.
func (l latencies) unfair(method string, had time.Duration) bool {
	return had < l.of.MinBudget(method)
}

// observe records a success of method: the call was admitted at arrived and took latency.
func (l latencies) observe(ctx context.Context, method string, arrived time.Time, latency time.Duration, now time.Time) {
	l.of.ObserveWithin(method, latency, allotted(ctx, arrived), now)
}

// allotted returns the time from arrived until the deadline of a call, or [deadline.None].
func allotted(ctx context.Context, arrived time.Time) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return end.Sub(arrived)
	}
	return deadline.None
}

// lateness refuses calls that would hardly finish before their deadline.
type lateness struct {
	latencies

	off     bool // it refuses none
	refused stats.Counter
}

// probing marks the context of a late call that the tap admitted as a probe.
type probing struct{}

// refuses reports whether a call to method should be refused. by is the deadline from [Options.Call], or zero. A call
// that has already ended is left to the gate.
func (l *lateness) refuses(ctx context.Context, method string, by time.Time) bool {
	if l.off {
		return false
	}
	by = earlier(ctx, by)
	if by.IsZero() || !l.of.TooLate(method, time.Now(), by) || ctx.Err() != nil || ctx.Value(probing{}) != nil {
		return false
	}
	l.refused.Add(1)
	return true
}

// tap is like refuses. The interceptor asks again after the tap, so tap returns the context for the interceptor.
func (l *lateness) tap(ctx context.Context, method string, by time.Time) (context.Context, bool) {
	if l.off {
		return ctx, false
	}
	if by = earlier(ctx, by); by.IsZero() {
		return ctx, false
	}
	if l.refuses(ctx, method, by) {
		return ctx, true
	}
	if least, known := l.of.Estimate(method); known && time.Until(by) < least {
		return context.WithValue(ctx, probing{}, true), false
	}
	return ctx, false
}

// done ends a unary call to method with outcome o, and learns how long it took.
func (l *lateness) done(ctx context.Context, method string, permit *spillway.Permit, o spillway.Outcome) {
	arrived := permit.Arrived()
	latency := time.Since(arrived)
	now := arrived.Add(latency)
	permit.DoneAt(now, o, 0)
	switch {
	case o == spillway.Success:
		l.observe(ctx, method, arrived, latency, now)
	case ctx.Err() != nil && !l.off:
		l.of.Unfinished(method, latency, now)
	}
}

// earlier returns the earlier of the deadline of ctx and by; a zero by means none.
func earlier(ctx context.Context, by time.Time) time.Time {
	if d, ok := ctx.Deadline(); ok && (by.IsZero() || d.Before(by)) {
		return d
	}
	return by
}
