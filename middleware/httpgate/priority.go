package httpgate

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/priority"
)

// PriorityOptions say how [NewPriority] reads the priority of a request. The zero PriorityOptions trust no peer.
type PriorityOptions struct {
	// Trusted are the networks of the peers whose header fields count: your proxies and your own services. The peer is
	// the remote address of the connection. A network must have at least 1 bit. If Trusted is empty and TrustUnix is
	// false, no field counts, except as Browser says.
	Trusted []netip.Prefix
	// TrustUnix says that peers without an IP address, through a Unix socket, are trusted too.
	TrustUnix bool
	// Header is the field with the priority: an integer, or a name such as "critical" or "normal-1". A request with
	// another value, or with several, has no priority from it. If Header is empty, it is "Spillway-Priority".
	Header string
	// LowerFirst says that lower numbers are more important, as in X-Message-Priority of Envoy and
	// 3gpp-Sbi-Message-Priority.
	LowerFirst bool
	// NormalIs is the number that means [spillway.Normal]. If NormalIs is 0, it is 0; for 3gpp-Sbi-Message-Priority, which
	// is 0 to 31, write 16.
	NormalIs int
	// Browser reads two fields that browsers send, if Header gives no priority. "Sec-Purpose: prefetch" is Sheddable. The
	// urgency of "Priority: u=1" (RFC 9218) is 3 minus u: u=7 is Sheddable, u=3 is Normal. From peers that are not
	// trusted, the two fields can lower a priority but never raise it above Normal.
	Browser bool
	// Min and Max are the bounds of the result; other priorities count as the nearest bound. If both are 0, they are
	// [spillway.Sheddable] and [spillway.Critical]. They do not change the Normal of a request without a priority.
	Min, Max spillway.Priority
}

// NewPriority returns a function for [Options.Request] that reads the priority of a request from its header. A request
// without a valid priority from a trusted peer is [spillway.Normal]. The function is safe for concurrent use. It
// allocates only for a priority given by name and for a peer without an IP address. If o is nil, it has the defaults.
// The error names the invalid field.
//
//	priority := spillway.Must(httpgate.NewPriority(&httpgate.PriorityOptions{Trusted: proxies}))
//	protect := httpgate.Handler(gate, &httpgate.Options{Request: func(r *http.Request) spillway.Request {
//		return spillway.Request{Key: tenant(r), Priority: priority(r)}
//	}})
func NewPriority(o *PriorityOptions) (func(r *http.Request) spillway.Priority, error) {
	var opts PriorityOptions
	if o != nil {
		opts = *o
	}
	if opts.Header == "" {
		opts.Header = "Spillway-Priority"
	}
	if !validField(opts.Header) {
		return nil, fmt.Errorf("httpgate: Priority: Header must be a header field, got %q", opts.Header)
	}
	rule, err := priority.New("httpgate", priority.Rule{
		Trusted: opts.Trusted, TrustUnix: opts.TrustUnix, Lower: opts.LowerFirst, Zero: opts.NormalIs, Min: opts.Min, Max: opts.Max,
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the package and the field
	}
	p := &priorities{rule: rule, header: http.CanonicalHeaderKey(opts.Header), browser: opts.Browser}
	return p.of, nil
}

// priorities read the priorities of requests.
type priorities struct {
	rule    *priority.Rule
	header  string
	browser bool
}

func (p *priorities) of(r *http.Request) spillway.Priority {
	nearest, _ := parseHop(r.RemoteAddr)
	trusted := p.rule.Trusts(nearest.addr)
	if values := r.Header[p.header]; trusted && len(values) == 1 {
		if level, ok := p.rule.Parse(values[0]); ok {
			return level
		}
	}
	if !p.browser {
		return spillway.Normal
	}
	level := p.browsed(r.Header)
	if !trusted {
		level = min(level, spillway.Normal)
	}
	return level
}

// browsed returns the priority that a browser gives.
func (p *priorities) browsed(h http.Header) spillway.Priority {
	for _, purpose := range h["Sec-Purpose"] {
		if purpose, _, _ = strings.Cut(purpose, ";"); strings.EqualFold(strings.Trim(purpose, " \t"), "prefetch") {
			return p.rule.Clamp(spillway.Sheddable)
		}
	}
	var level spillway.Priority
	for _, line := range h["Priority"] {
		if urgency, ok := p.rule.Urgency(line); ok {
			level = urgency
		}
	}
	return level
}
