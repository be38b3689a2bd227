package grpcgate

import (
	"context"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/deadline"
	"github.com/spillway-go/spillway/stats"
)

// lateness refuses calls that would hardly finish before their deadline. What it learns, it learns of unary calls.
type lateness struct {
	latencies *deadline.Estimator // nil if it judges nothing
	refused   stats.Counter
}

func newLateness(on bool) *lateness {
	if !on {
		return &lateness{}
	}
	return &lateness{latencies: spillway.Must(deadline.New(nil))}
}

// probing marks the context of a call that is too late, but was let through the tap to learn whether that is still so.
type probing struct{}

// refuses reports whether a call to method should be refused. by is the deadline that [Options.Call] has told, or zero.
// What has ended already is left to the gate.
func (l *lateness) refuses(ctx context.Context, method string, by time.Time) bool {
	if l.latencies == nil {
		return false
	}
	by = earlier(ctx, by)
	if by.IsZero() || !l.latencies.TooLate(method, time.Now(), by) || ctx.Err() != nil || ctx.Value(probing{}) != nil {
		return false
	}
	l.refused.Add(1)
	return true
}

// tap is refuses for a call that will be asked about once more, by the interceptor. It returns the context for that.
func (l *lateness) tap(ctx context.Context, method string, by time.Time) (context.Context, bool) {
	if l.latencies == nil {
		return ctx, false
	}
	if by = earlier(ctx, by); by.IsZero() {
		return ctx, false
	}
	if l.refuses(ctx, method, by) {
		return ctx, true
	}
	if least, known := l.latencies.Estimate(method); known && time.Until(by) < least {
		return context.WithValue(ctx, probing{}, true), false
	}
	return ctx, false
}

// done ends a call to method with outcome o, and learns how long it took.
func (l *lateness) done(ctx context.Context, method string, permit *spillway.Permit, o spillway.Outcome) {
	if l.latencies == nil {
		permit.Done(o)
		return
	}
	arrived := permit.Arrived()
	latency := time.Since(arrived)
	now := arrived.Add(latency)
	permit.DoneAt(now, o)
	switch {
	case o == spillway.Success:
		l.latencies.Observe(method, latency, now)
	case ctx.Err() != nil:
		l.latencies.Unfinished(method, latency, now)
	}
}

// earlier returns the earlier of the deadline of ctx and by, of which zero is none.
func earlier(ctx context.Context, by time.Time) time.Time {
	if d, ok := ctx.Deadline(); ok && (by.IsZero() || d.Before(by)) {
		return d
	}
	return by
}
