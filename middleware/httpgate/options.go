package httpgate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-go/spillway"
)

const (
	// defaultMaxLongLived bounds what idle connections may hold: at some 20 KiB each, about 200 MiB.
	defaultMaxLongLived = 10_000
	// One key may hold a longLivedShare-th of them.
	longLivedShare = 10
)

// Options says how a [Middleware] sees requests. The zero Options consists entirely of defaults. Its functions are called
// from many goroutines at once.
type Options struct {
	// Request tells the policies about a request: its key, priority and cost. It runs before the gate, on every request
	// that is not exempt: it has to be cheap, and must not read the body. A key that the client can choose at will, such
	// as an X-Forwarded-For that no proxy of yours has set, gives every request a share of its own.
	// If Request is nil, every request is the zero [spillway.Request].
	Request func(r *http.Request) spillway.Request

	// Exempt reports whether r passes by the gate: it is neither limited nor measured, only counted.
	// If Exempt is nil, it is [DefaultExempt].
	Exempt func(r *http.Request) bool

	// LongLived reports whether r is long-lived: it may stay open for as long as its client likes, so that how long it
	// takes says nothing about the service. A long-lived request is admitted by the gate and needs room under
	// MaxLongLived. It then leaves the gate with [spillway.Ignored], and no longer counts as in flight.
	//
	// If LongLived is nil, a client may claim that its request is long-lived, by an Upgrade header (other than h2c) or by
	// a GET that accepts text/event-stream and nothing else, as the EventSource of a browser sends it. The claim has to
	// prove true before the request leaves the gate: by a hijack, a 101, or the flush of a text/event-stream. A POST that
	// streams its answer is work, not a subscription, and stays in flight.
	//
	// If LongLived is set, its word is enough: a request leaves the gate as soon as the gate has admitted it. So it should
	// look at the route rather than at what a client can put in a header.
	//
	// A hijacked connection or a 101 always leaves the gate, if there is room under MaxLongLived; if not, it stays in
	// flight. A long-lived request counts as open until its handler returns, or until the connection is closed that its
	// handler hijacked.
	LongLived func(r *http.Request) bool

	// MaxLongLived is how many long-lived requests may be open at once; one more is refused.
	// If MaxLongLived is 0, it is 10000.
	MaxLongLived int

	// MaxLongLivedPerKey is how many of them may have the same [spillway.Request].Key; one more is refused as over quota.
	// So no client takes all the room, if Request says whose a request is. The empty key has no limit of its own.
	// If MaxLongLivedPerKey is 0, it is a tenth of MaxLongLived, and at least 1. If keys are routes, or tenants with many
	// users, set it.
	MaxLongLivedPerKey int

	// Deadline refuses at once what would hardly finish before its deadline, judged by how long others took.
	// If Deadline is nil, a request is refused only if its context has ended already, by its deadline or its client: it
	// is not known which requests take equally long.
	Deadline *Deadline

	// MinBudget is the least time that a request must have had for a missed deadline to count against the service. A
	// request that had less is Ignored, so that clients in a hurry cannot make the service look slow. Once 10 requests of a
	// route have succeeded, the latency that 99 of 100 of them stay under takes the place of MinBudget. The time that the
	// client kept the handler waiting does not count. The deadline is that of the context, the one that Deadline reads, or
	// grpc-timeout and connect-timeout-ms.
	// If MinBudget is 0, it is 100 ms.
	MinBudget time.Duration

	// Outcome says how a request went whose handler has returned, from the status of its response (200 if the handler
	// wrote none; for gRPC, what its grpc-status is in HTTP) and from r.Context().Err(), which is not nil if the client is
	// gone or a deadline has passed.
	// If Outcome is nil, it is [DefaultOutcome].
	//
	// Outcome does not decide about a handler that panics or exits its goroutine: that is a [spillway.Failure], or
	// [spillway.Ignored] if the client was gone. Nor about a request that has left the gate, whose body could not be read
	// because of its client, that had too little time (MinBudget), or that another gate of this process refused: these are Ignored.
	Outcome func(r *http.Request, status int) spillway.Outcome

	// Refuse answers a request that was refused. It must not modify rej, which is shared, nor read the body of r; under
	// overload it runs more often than the handler. To add to the default answer, set headers and call [WriteRefusal].
	// If Refuse is nil, it is WriteRefusal.
	Refuse func(w http.ResponseWriter, r *http.Request, rej *spillway.Rejection)

	// RateLimit writes what limits have left for the client into the header of each answer, before the handler or Refuse
	// runs. If RateLimit is nil, no answer tells of limits, but for the Retry-After of a refusal.
	RateLimit *RateLimit
}

// withDefaults returns a copy of o whose fields are all set, except Request, LongLived, Deadline and RateLimit, whose nil
// has a meaning of its own. The error names the field and its value.
func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	if out.MaxLongLived < 0 {
		return out, fmt.Errorf("httpgate: MaxLongLived: must be at least 0, got %d", out.MaxLongLived)
	}
	if out.MaxLongLived == 0 {
		out.MaxLongLived = defaultMaxLongLived
	}
	if out.MaxLongLivedPerKey < 0 {
		return out, fmt.Errorf("httpgate: MaxLongLivedPerKey: must be at least 0, got %d", out.MaxLongLivedPerKey)
	}
	if out.MaxLongLivedPerKey == 0 {
		out.MaxLongLivedPerKey = max(out.MaxLongLived/longLivedShare, 1)
	}
	if out.MinBudget < 0 {
		return out, fmt.Errorf("httpgate: MinBudget: must be at least 0, got %v", out.MinBudget)
	}
	if out.MinBudget == 0 {
		out.MinBudget = defaultMinBudget
	}
	if out.RateLimit != nil {
		if err := out.RateLimit.validate(); err != nil {
			return out, err
		}
	}
	if out.Exempt == nil {
		out.Exempt = DefaultExempt
	}
	if out.Outcome == nil {
		out.Outcome = func(r *http.Request, status int) spillway.Outcome { return DefaultOutcome(r.Context(), status) }
	}
	if out.Refuse == nil {
		out.Refuse = func(w http.ResponseWriter, r *http.Request, rej *spillway.Rejection) { WriteRefusal(w, r, rej) }
	}
	return out, nil
}

// DefaultOutcome returns how a request went that was answered with the given status, in this order:
//
//   - Ignored if ctx was cancelled: the client is gone,
//   - Dropped if the deadline of ctx has passed, and for 429 and 503,
//   - Failure for any other status from 500 up,
//   - Ignored for any other status from 400 up: how fast a bad request is turned down says nothing about the service,
//   - Success otherwise.
func DefaultOutcome(ctx context.Context, status int) spillway.Outcome {
	if err := ctx.Err(); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return spillway.Dropped
		}
		return spillway.Ignored
	}
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return spillway.Dropped
	case status >= 500:
		return spillway.Failure
	case status >= 400:
		return spillway.Ignored
	}
	return spillway.Success
}
