package grpcgate

import (
	"context"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/deadline"
)

// latencies records how long the calls to each method take.
type latencies struct {
	of *deadline.Chance
}

func newLatencies(minBudget time.Duration) latencies {
	return latencies{of: spillway.Must(deadline.NewChance(minBudget, nil))}
}

// unfair reports whether the given time was too short for a call to method, so that its outcome says nothing.
func (l latencies) unfair(method string, had time.Duration) bool {
	return !l.of.Fair(method, had)
}

// observe records a success of method: the call was admitted at arrived and took latency.
func (l latencies) observe(ctx context.Context, method string, arrived time.Time, latency time.Duration) {
	l.of.Observe(method, latency, allotted(ctx, arrived))
}

// allotted returns the time from arrived until the deadline of a call, or [deadline.None].
func allotted(ctx context.Context, arrived time.Time) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return end.Sub(arrived)
	}
	return deadline.None
}

// done ends a unary call to method with outcome o, and records how long a success took.
func (l latencies) done(ctx context.Context, method string, permit *spillway.Permit, o spillway.Outcome) {
	arrived := permit.Arrived()
	latency := time.Since(arrived)
	permit.DoneAt(arrived.Add(latency), o, 0)
	if o == spillway.Success {
		l.observe(ctx, method, arrived, latency)
	}
}
