package httpgate

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/deadline"
	"github.com/spillway-go/spillway/internal/orca"
	"github.com/spillway-go/spillway/internal/overload"
	"github.com/spillway-go/spillway/internal/places"
	"github.com/spillway-go/spillway/stats"
)

// Handler returns middleware that lets a request through to the wrapped handler if gate admits it. If o is nil, it has
// the defaults. Every handler it wraps shares the gate and the room for long-lived requests.
//
// Handler panics if gate is nil or if a field of o is invalid; [New] returns the error instead.
func Handler(gate *spillway.Gate, o *Options) func(http.Handler) http.Handler {
	return spillway.Must(New(gate, o)).Handler
}

// A Middleware gates HTTP requests. It is made by [New], and safe for concurrent use.
type Middleware struct {
	gate    *spillway.Gate
	o       Options            // no field is nil, except Request, LongLived and RateLimit
	load    *orca.Reporter     // nil if it reports nothing
	tells   *overload.Reporter // nil if it tells clients nothing
	long    *longLived
	chance  *deadline.Chance
	exempts stats.Counter
}

// New returns a Middleware in front of gate. If o is nil, it has the defaults. The error names the invalid argument: a
// nil gate, or a field of o and its value.
func New(gate *spillway.Gate, o *Options) (*Middleware, error) {
	if gate == nil {
		return nil, errors.New("httpgate: gate: must be a Gate, got nil")
	}
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	chance, err := deadline.NewChance(opts.MinBudget, nil)
	if err != nil {
		return nil, err
	}
	load, err := orca.New(opts.LoadReport, gate.Metrics)
	if err != nil {
		return nil, fmt.Errorf("httpgate: %w", err)
	}
	long := &longLived{Places: places.New(opts.MaxLongLived, opts.MaxLongLivedPerKey)}
	m := &Middleware{gate: gate, o: opts, load: load, long: long, chance: chance}
	if opts.TellClients {
		m.tells = overload.NewReporter(gate.Metrics)
	}
	return m, nil
}

// Stats is a snapshot of the counts of a [Middleware] or [Transport] that its [spillway.Gate] does not have.
type Stats struct {
	Exempt           int64 // requests that bypassed the gate
	LongLived        int64 // requests that have left the gate and are open now
	LongLivedRefused int64 // long-lived requests refused because Options.MaxLongLived were open; the Gate did not see them

	// HeldBack counts the requests that a Transport did not send because the server asked it to
	// (TransportOptions.ListenTo), and Throttled those because the server refused many. The Gate did not see them.
	HeldBack, Throttled int64

	// Retries counts the requests that a Transport sent again.
	Retries int64

	// Leaked counts the responses to a Transport that were never closed. Each held its connection and its place in
	// flight until the garbage collector found it, so it should be 0.
	Leaked int64
}

// Stats returns a snapshot of the counts. It may be called at any time.
func (m *Middleware) Stats() Stats {
	return Stats{Exempt: m.exempts.Value(), LongLived: m.long.Taken(), LongLivedRefused: m.long.refused.Value()}
}

// Handler wraps next. It panics if next is nil.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("httpgate: Handler: next must be a handler, got nil")
	}
	return &gated{m: m, next: next}
}

// gated is a handler behind the gate.
type gated struct {
	m    *Middleware
	next http.Handler
}

func (h *gated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m := h.m
	if m.o.Exempt(r) {
		m.exempts.Add(1)
		h.next.ServeHTTP(w, r)
		return
	}
	if isH2CPreface(r) {
		http.Error(w, errH2C.Error(), http.StatusHTTPVersionNotSupported)
		return
	}
	if m.load != nil {
		m.reportLoad(w, r)
	}
	var req spillway.Request
	if m.o.Request != nil {
		req = m.o.Request(r)
	}
	route := req.Route
	if route == "" && r.Method != http.MethodConnect { // whose pattern would be its target
		req.Route = r.Pattern
	}
	claimed := m.claimsLongLife(r)
	if claimed && r.Context().Err() == nil {
		if rej := m.long.refuses(req.Key); rej != nil {
			m.refuse(w, r, rej)
			return
		}
	}
	if claimed { // how long it stays open says nothing
		req.Timeout = 0
	}
	permit, err := m.gate.Enter(r.Context(), req)
	if err != nil {
		m.refuse(w, r, m.tellRefused(w, req, err))
		return
	}
	m.tellAdmitted(w, req, &permit)
	gw, x := wrap(w, r)
	x.m, x.permit, x.route, x.key, x.claimed, x.tells, x.timeout = m, permit, route, req.Key, claimed, m.tells, req.Timeout
	if claimed && m.o.LongLived != nil {
		x.detach()
	}
	h.serve(gw, x) //nolint:contextcheck // the context is that of the request
}

// reportLoad writes the load report, if the request is to get one.
func (m *Middleware) reportLoad(w http.ResponseWriter, r *http.Request) {
	format := r.Header[orca.Format]
	asked := len(format) > 0 && (format[0] == "text" || format[0] == "json")
	if !asked && m.o.LoadReport == ReportOnRequest {
		return
	}
	report := m.load.Report(time.Now())
	if asked && format[0] == "json" {
		w.Header()[orca.Header] = report.JSON
		return
	}
	w.Header()[orca.Header] = report.Text
}

// serve runs the handler under the permit of x. It does not recover, so a panic keeps its stack, and it also handles
// Goexit.
func (h *gated) serve(w http.ResponseWriter, x *exchange) {
	r := x.take()
	if x.cancel != nil {
		defer x.cancel()
	}
	defer x.end()
	h.next.ServeHTTP(w, r)
	x.returned()
}
