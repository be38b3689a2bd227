package httpgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/orca"
)

const (
	// defaultMaxLongLived bounds the memory of idle connections: at some 20 KiB each, about 200 MiB.
	defaultMaxLongLived = 10_000
	// One key may hold one part in longLivedShare of them.
	longLivedShare = 10
)

// Options configure a [Middleware]. The zero Options consists entirely of defaults. Its functions may be called
// concurrently.
type Options struct {
	// Request describes a request to the policies: its key, route, priority, cost and timeout. It runs before the gate, on every
	// request that is not exempt. It must be cheap and must not read the body. If it leaves the route empty, the route is
	// [http.Request.Pattern], which only a gate inside a mux knows; for a gate around a mux use [PatternKey]. Do not use a key that the client can
	// choose freely, such as an X-Forwarded-For that none of your proxies has set, because each request could then have
	// its own share. If Request is nil, every request is the zero [spillway.Request].
	//
	// A positive Timeout, such as that of [ClientTimeout], also ends the context of the handler, unless the request is
	// long-lived. So the calls that the handler makes have the remaining time. See package deadline for the policy that
	// refuses requests with too little time.
	Request func(r *http.Request) spillway.Request

	// Exempt reports whether r bypasses the gate. Such a request is only counted, not limited or measured. If Exempt is
	// nil, it is [DefaultExempt].
	Exempt func(r *http.Request) bool

	// LongLived reports whether r is long-lived: it may stay open for as long as its client likes, so that how long it
	// takes says nothing about the service. A long-lived request is admitted by the gate and needs room under
	// MaxLongLived. It then leaves the gate with [spillway.Ignored], and no longer counts as in flight.
	//
	// If LongLived is nil, a client may claim that its request is long-lived, by an Upgrade header (other than h2c) or
	// by a GET that accepts text/event-stream and nothing else, as the EventSource of a browser sends it. The request
	// leaves the gate only when the claim proves true: by a hijack, a 101, or the flush of a text/event-stream. A POST
	// that streams its answer is work, not a subscription, and stays in flight.
	//
	// If LongLived is set, it alone decides: a long-lived request leaves the gate as soon as the gate has admitted it.
	// So it should look at the route rather than at headers, which a client can set.
	//
	// A hijacked connection or a 101 always leaves the gate, if there is room under MaxLongLived; if not, it stays in
	// flight. A long-lived request counts as open until its handler returns, or until its hijacked connection is
	// closed.
	LongLived func(r *http.Request) bool

	// MaxLongLived is how many long-lived requests may be open at once; further requests are refused. If MaxLongLived
	// is 0, it is 10000.
	MaxLongLived int

	// MaxLongLivedPerKey is how many of them may have the same [spillway.Request].Key; further requests are refused as
	// over quota. So no client takes all the room, if Request sets a key per client. The empty key has no limit of its
	// own. If MaxLongLivedPerKey is 0, it is a tenth of MaxLongLived, and at least 1. If keys are routes, or tenants
	// with many users, set it.
	MaxLongLivedPerKey int

	// MinBudget is the shortest time budget for which a missed deadline counts against the service. A request that had
	// less time is Ignored, so that very short deadlines cannot make the service look slow. Once 10 requests of a route
	// with enough time have succeeded, their 99th percentile replaces MinBudget. The time that the client kept the handler waiting does
	// not count. The deadline comes from the context, from the Timeout of Request, or from grpc-timeout and
	// connect-timeout-ms. If MinBudget is 0, it is 100 ms.
	MinBudget time.Duration

	// Outcome returns the outcome of a request whose handler has returned. It depends on the status of the response
	// (200 if the handler wrote none; for gRPC, the HTTP equivalent of its grpc-status) and on r.Context().Err(), which
	// is not nil if the client is gone or a deadline has passed. If Outcome is nil, it is [DefaultOutcome].
	//
	// Outcome does not decide about a handler that panics or exits its goroutine: that is a [spillway.Failure], or
	// [spillway.Ignored] if the client was gone. Some requests are always Ignored: those that have left the gate, those
	// with a body that could not be read because of the client, those with a gRPC message that could not be read or
	// written because of its content or size, those with too little time (MinBudget), and those that another gate of
	// this process refused.
	Outcome func(r *http.Request, status int) spillway.Outcome

	// Refuse answers a request that was refused. It must not modify rej, which is shared, nor read the body of r; under
	// overload it runs more often than the handler. To add to the default answer, set headers and call [WriteRefusal].
	// If Refuse is nil, it is WriteRefusal.
	Refuse func(w http.ResponseWriter, r *http.Request, rej *spillway.Rejection)

	// RateLimit writes the tokens left for the client into the header of each answer, before the handler or Refuse
	// runs. If RateLimit is nil, answers do not mention limits, except for the Retry-After of a refusal.
	RateLimit *RateLimit

	// LoadReport says which answers carry a load report in the header endpoint-load-metrics, as load balancers read it
	// (ORCA): application_utilization is the demand of the shedder ([shedder.Stats].Demand), and may exceed 1; eps counts
	// failures and refusals. It is rendered once per 100 ms. Remove the header where answers leave your network, because
	// it tells strangers your load. If LoadReport is 0, it is [ReportOff].
	//
	// [shedder.Stats]: https://pkg.go.dev/github.com/spillway-go/spillway/shedder#Stats
	LoadReport LoadReport

	// TellClients tells clients that listen ([TransportOptions.ListenTo]) which requests to hold back under overload, in
	// the header Spillway-Overload: on each refusal, on all answers during and shortly after an overload, and on one in 16
	// otherwise. The figures are those of the shedder in the gate ([shedder.Stats].HoldBack). Without a shedder, the header
	// asks clients to send everything. It is rendered once per 100 ms. Remove it where answers leave your network, because
	// it tells strangers your load. Use one Middleware for a whole server, because clients take each for a server of its
	// own.
	TellClients bool

	// TellEnvoy adds "X-Envoy-Overloaded: true" to each refusal for lack of room, so that an Envoy in front does not retry
	// it.
	TellEnvoy bool
}

// A LoadReport says which answers carry a load report.
type LoadReport = orca.Mode

// The choices.
const (
	ReportOff       = orca.Off       // none
	ReportOnRequest = orca.OnRequest // those to requests with the header endpoint-load-metrics-format: text or json
	ReportAlways    = orca.Always    // all, as text unless the request asks for json
)

// withDefaults returns a copy of o whose fields are all set, except Request, LongLived and RateLimit, where
// nil has its own meaning. The error names the field and its value.
func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	if err := settle("MaxLongLived", &out.MaxLongLived, defaultMaxLongLived); err != nil {
		return out, err
	}
	if err := settle("MaxLongLivedPerKey", &out.MaxLongLivedPerKey, max(out.MaxLongLived/longLivedShare, 1)); err != nil {
		return out, err
	}
	if err := settle("MinBudget", &out.MinBudget, defaultMinBudget); err != nil {
		return out, err
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

// settle sets *v to byDefault if it is 0. If it is negative, the error names the field and the value.
func settle[T int | time.Duration](field string, v *T, byDefault T) error {
	if *v < 0 {
		return fmt.Errorf("httpgate: %s: must be at least 0, got %v", field, *v)
	}
	*v = cmp.Or(*v, byDefault)
	return nil
}

// DefaultOutcome returns the outcome of a request that was answered with the given status. The first matching rule
// counts:
//
//   - Ignored if ctx was cancelled: the client is gone,
//   - Dropped if the deadline of ctx has passed, and for 429 and 503,
//   - Failure for any other status from 500 up,
//   - Ignored for any other status from 400 up: the speed of refusing a bad request says nothing about the service,
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
