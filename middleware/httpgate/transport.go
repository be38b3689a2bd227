package httpgate

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/deadline"
	"github.com/spillway-go/spillway/internal/overload"
	"github.com/spillway-go/spillway/stats"
)

// A Transport is an [http.RoundTripper] that gates the requests of a client. It is made by [NewTransport], and safe for
// concurrent use.
//
// Each attempt is a separate request: redirects and retries of the client pass the gate again. A request that the gate
// refuses is not sent; its body is closed, and the error is the *[spillway.Rejection], which the net/http client wraps
// together with the URL.
//
// A call is in flight until its response is read to the end, closed or broken off, or its context ends. Its latency is
// the time that the server took: the caller's own time, when its body stalled or before it read on, is not part of it.
// A call is Ignored if the request was not valid, if its body could not be read or had the wrong length, or if it broke
// off after the caller had kept the server waiting for a second.
//
// A call ends with the header in three cases: if the response has no body, if it is a text/event-stream, whose end is
// unknown, and if the body can be written to, as after a 101. Such a body is passed on unchanged.
type Transport struct {
	gate   *spillway.Gate
	base   http.RoundTripper
	o      TransportOptions // no field is nil, except Route and Budget
	chance *deadline.Chance
	hosts  *overload.Hosts // nil if it listens to none
	leaked atomic.Int64
	again  stats.Counter // requests sent again
}

// NewTransport returns a Transport in front of base. If base is nil, it is [http.DefaultTransport]; if o is nil, it
// has the defaults. The error names the invalid argument: a nil gate, or a field of o and its value.
func NewTransport(gate *spillway.Gate, base http.RoundTripper, o *TransportOptions) (*Transport, error) {
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
	hosts, err := listenTo(opts.ListenTo)
	if err != nil {
		return nil, err
	}
	return &Transport{gate: gate, base: base, o: opts, chance: chance, hosts: hosts}, nil
}

// TransportOptions configure a [Transport]. The zero TransportOptions consists entirely of defaults. Its functions
// may be called concurrently, and must not modify their arguments.
type TransportOptions struct {
	// Request describes a request to the policies. Its Timeout does not end the call, but the deadline of the context of r
	// does. If Request is nil, the key is [HostKey], and the rest is zero.
	Request func(r *http.Request) spillway.Request

	// Outcome returns the outcome of a call. It is called once when there is a response (err is nil) or an error (res
	// is nil). After a Success it is called again if the body breaks off, with both arguments set. If a response was
	// Dropped, its [RetryAfter] goes to the policies with the outcome. If Outcome is nil, it is
	// [DefaultTransportOutcome].
	Outcome func(r *http.Request, res *http.Response, err error) spillway.Outcome

	// MinBudget is the shortest time budget for which a missed deadline counts against the server. A call that had less
	// time is Ignored, so that very short deadlines cannot trip a breaker for all callers. Once 10 calls of a route
	// with enough time have been answered with 2xx, their 99th percentile replaces MinBudget. The caller's own time does not count, such
	// as a stalled request body or an unread response. If MinBudget is 0, it is 100 ms.
	MinBudget time.Duration

	// Route returns a name for calls that take about as long as r, or "" if nothing is known about r. The names must
	// come from a fixed set of the service. The latency that replaces MinBudget is learned per Route. It is also the
	// route of the [spillway.Request], if Request leaves that empty. If Route is nil, latencies are learned per key.
	Route func(r *http.Request) string

	// TimeoutHeader is the header field in which a call passes on the time that its context leaves, in whole
	// milliseconds: for example Connect-Timeout-Ms, Grpc-Timeout, which gets its unit, or one of your own. A shorter time
	// in the field stays. If TimeoutHeader is empty, or if the context has no deadline, the field is left alone.
	TimeoutHeader string

	// AtHeader ends every call when the header of its response arrives. Then the time and the errors of the body do not
	// count.
	AtHeader bool

	// Budget records the outcome of every call, and decides whether a retry is affordable. Share one between all clients
	// of a process. If Budget is nil, nothing is recorded, unless Retry is set: then the Transport has a budget of its own
	// with the defaults.
	Budget *RetryBudget

	// ListenTo lists hosts that may ask this client to hold requests back, in the form of [HostKey]: "api.example",
	// "127.0.0.1:8080". Under overload such a host says in the header Spillway-Overload (Options.TellClients) from which
	// priority on it has room. The Transport then refuses requests of lower priorities, and a share of those at that
	// priority, without sending them. It believes at most a share of 0.95, for at most 10 s after an answer, and sends one
	// request per second whatever the host says. A host that says nothing but refuses many requests (Outcome is Dropped)
	// is sent at most about 1.4 times those that it accepts. These refusals happen before the gate, and [Stats] counts
	// them. The header is removed from the answers, so that a proxy does not pass it on. If ListenTo is empty, the header
	// means nothing.
	ListenTo []string

	// Retry sends requests again that the server refused or could not answer. If Retry is nil, each request is sent once.
	Retry *Retry
}

const defaultMinBudget = 100 * time.Millisecond

func (o *TransportOptions) withDefaults() (TransportOptions, error) {
	var out TransportOptions
	if o != nil {
		out = *o
	}
	if err := settle("MinBudget", &out.MinBudget, defaultMinBudget); err != nil {
		return out, err
	}
	if out.TimeoutHeader != "" && !validField(out.TimeoutHeader) {
		return out, fmt.Errorf("httpgate: TimeoutHeader: must be a header field, got %q", out.TimeoutHeader)
	}
	out.TimeoutHeader = http.CanonicalHeaderKey(out.TimeoutHeader)
	retry, err := out.Retry.withDefaults()
	if err != nil {
		return out, err
	}
	if out.Retry = retry; retry != nil && out.Budget == nil {
		out.Budget = spillway.Must(NewRetryBudget(nil))
	}
	if out.Request == nil {
		out.Request = func(r *http.Request) spillway.Request { return spillway.Request{Key: HostKey(r)} }
	}
	if out.Outcome == nil {
		out.Outcome = DefaultTransportOutcome
	}
	return out, nil
}

// Stats returns a snapshot of the counts. It may be called at any time.
func (t *Transport) Stats() Stats {
	return Stats{
		Leaked: t.leaked.Load(), HeldBack: t.hosts.HeldBack(), Throttled: t.hosts.Throttled(), Retries: t.again.Value(),
	}
}

// CloseIdleConnections closes the idle connections of the base RoundTripper, if it has a method for that.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip sends r through the base RoundTripper if the gate admits it, and again if TransportOptions.Retry says so. A
// request without a host cannot be sent, so it is not gated: base returns the error.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL == nil || r.URL.Host == "" {
		return t.base.RoundTrip(r) //nolint:wrapcheck // a RoundTripper adds nothing to an error
	}
	if t.o.Retry != nil {
		return t.repeat(r)
	}
	res, _, err := t.once(r)
	return res, err
}

// once sends r through the base RoundTripper if the gate admits it. The outcome is Ignored if the server had no part in
// it.
func (t *Transport) once(r *http.Request) (*http.Response, spillway.Outcome, error) {
	req := t.o.Request(r)
	route := req.Key
	if t.o.Route != nil {
		route = t.o.Route(r)
		if req.Route == "" {
			req.Route = route
		}
	}
	host := t.hostOf(r)
	if host != nil {
		if rej := host.Refuses(req.Priority, time.Now()); rej != nil {
			return nil, spillway.Ignored, unsent(r, rej)
		}
	}
	permit, err := t.gate.Enter(r.Context(), req)
	if err != nil {
		return nil, spillway.Ignored, unsent(r, err)
	}
	c := &call{t: t, r: r, permit: permit, route: route, host: host, level: req.Priority}
	defer c.unwind()
	sent := r
	if c.out = newOutgoing(r, permit.Arrived()); c.out != nil {
		sent = &c.out.Request
	}
	if t.o.TimeoutHeader != "" {
		sent = passTimeout(sent, r, t.o.TimeoutHeader)
	}
	res, err := t.base.RoundTrip(sent)
	if res != nil && res.Request == sent {
		res.Request = r
	}
	c.answered(res, err) //nolint:contextcheck // the context is that of the request
	return res, c.outcome, err
}
