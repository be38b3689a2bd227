package httpgate

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/deadline"
)

// Transport returns a RoundTripper that sends a request through base if gate admits it. If base is nil, it is
// [http.DefaultTransport]; if o is nil, it has the defaults.
//
// Transport panics if gate is nil or if a field of o is invalid; [NewTransport] returns the error instead.
func Transport(gate *spillway.Gate, base http.RoundTripper, o *TransportOptions) http.RoundTripper {
	return spillway.Must(NewTransport(gate, base, o))
}

// A RoundTripper gates the requests of a client. It is made by [NewTransport], and safe for concurrent use.
//
// Each attempt is a request of its own: what the client redirects or retries passes the gate again. A request that the
// gate refuses is not sent; its body is closed, and the error is the *[spillway.Rejection], which the client of net/http
// wraps together with the URL.
//
// A call is in flight until its response is read to the end, closed or broken off, or its context ends. Its latency is the
// time that the server took: the caller's own time, when its body stalled or before it read on, is not part of it. A call
// says nothing about the server if the request was not valid, if its body could not be read or had another length than
// announced, or if it broke off after the caller had kept the server waiting for a second.
//
// A call ends with the header if there is nothing to wait for (a response without a body), if there is no telling how long (a
// text/event-stream), and if the body can be written to, as after a 101: that one is passed on as it is.
type RoundTripper struct {
	gate   *spillway.Gate
	base   http.RoundTripper
	o      TransportOptions // no field is nil, except Route and Budget
	chance *deadline.Chance
	leaked atomic.Int64
}

// NewTransport returns a RoundTripper in front of base. If base is nil, it is [http.DefaultTransport]; if o is nil, it has
// the defaults. The error names what is invalid: a nil gate, or a field of o and its value.
func NewTransport(gate *spillway.Gate, base http.RoundTripper, o *TransportOptions) (*RoundTripper, error) {
	if gate == nil {
		return nil, errors.New("httpgate: gate: must be a Gate, got nil")
	}
	if base == nil {
		base = http.DefaultTransport
	}
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	chance, err := deadline.NewChance(opts.MinBudget, nil)
	if err != nil {
		return nil, err
	}
	return &RoundTripper{gate: gate, base: base, o: opts, chance: chance}, nil
}

// TransportOptions says how a [RoundTripper] sees requests and their answers. The zero TransportOptions consists entirely
// of defaults. Its functions are called from many goroutines at once, and must not modify what they are given.
type TransportOptions struct {
	// Request tells the policies about a request. If Request is nil, the key is [HostKey], and the rest is zero.
	Request func(r *http.Request) spillway.Request

	// Outcome says how a call went. It is asked once when there is a response (err is nil) or an error (res is nil). If
	// that was a Success, it is asked once more if the body breaks off, with both. If a response was Dropped, its
	// [RetryAfter] goes to the policies with the outcome.
	// If Outcome is nil, it is [DefaultTransportOutcome].
	Outcome func(r *http.Request, res *http.Response, err error) spillway.Outcome

	// MinBudget is the least time that a call must have had for a missed deadline to count against the server. A call that
	// had less is Ignored, so that a caller in a hurry cannot trip a breaker for all. Once 10 calls of a route have
	// been answered with 2xx, the latency that 99 of 100 of them stay under takes the place of MinBudget. The time that the
	// caller used up itself, by a request body that stalled or a response that it did not read, does not count.
	// If MinBudget is 0, it is 100 ms.
	MinBudget time.Duration

	// Route returns a name for the calls that take about as long as r, from a set of the service's own, or "" for those of
	// which nothing is known. Their latency, which takes the place of MinBudget, is learned per Route.
	// If Route is nil, it is the key of the request.
	Route func(r *http.Request) string

	// AtHeader ends every call when the header of its response is there. What happens to the body then counts no more,
	// neither as time nor as an outcome.
	AtHeader bool

	// Budget hears of the outcome of every call, so that it can be asked whether a retry is affordable.
	// If Budget is nil, nobody hears of it.
	Budget *RetryBudget
}

const defaultMinBudget = 100 * time.Millisecond

func (o *TransportOptions) withDefaults() (TransportOptions, error) {
	var out TransportOptions
	if o != nil {
		out = *o
	}
	if out.MinBudget < 0 {
		return out, fmt.Errorf("httpgate: MinBudget: must be at least 0, got %v", out.MinBudget)
	}
	if out.MinBudget == 0 {
		out.MinBudget = defaultMinBudget
	}
	if out.Request == nil {
		out.Request = func(r *http.Request) spillway.Request { return spillway.Request{Key: HostKey(r)} }
	}
	if out.Outcome == nil {
		out.Outcome = DefaultTransportOutcome
	}
	return out, nil
}

// TransportStats is a snapshot of what a [RoundTripper] knows beyond what its [spillway.Gate] counts.
type TransportStats struct {
	// Leaked counts the responses that nobody closed. Each held its connection and its place in flight until the garbage
	// collector found it, so it should be 0.
	Leaked int64
}

// Stats returns a snapshot of the counts. It may be called at any time.
func (t *RoundTripper) Stats() TransportStats { return TransportStats{Leaked: t.leaked.Load()} }

// CloseIdleConnections closes the idle connections of the base RoundTripper, if it has a method for that.
func (t *RoundTripper) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip sends r through the base RoundTripper if the gate admits it. A request that names no host cannot be sent, so
// it is not gated: base says what is wrong with it.
func (t *RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL == nil || r.URL.Host == "" {
		return t.base.RoundTrip(r) //nolint:wrapcheck // a RoundTripper adds nothing to an error
	}
	req := t.o.Request(r)
	permit, err := t.gate.Enter(r.Context(), req)
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	c := &call{t: t, r: r, permit: permit, route: req.Key}
	defer c.unwind()
	if t.o.Route != nil {
		c.route = t.o.Route(r)
	}
	sent := r
	if c.out = newOutgoing(r, permit.Arrived()); c.out != nil {
		sent = &c.out.Request
	}
	res, err := t.base.RoundTrip(sent)
	if res != nil && res.Request == sent {
		res.Request = r
	}
	c.answered(res, err) //nolint:contextcheck // the context is that of the request
	return res, err
}
