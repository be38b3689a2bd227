package httpgate

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

const defaultIPv6Bits = 64

// ClientIPOptions say how a [ClientIP] finds the address of a client. The zero ClientIPOptions trusts no proxy: the client is
// the other end of the connection.
type ClientIPOptions struct {
	// Header is the field in which your proxies write the address of the client: "X-Forwarded-For", "Forwarded" (RFC 7239),
	// or another that holds an address or a list of them, the nearest hop last. If Header is empty, no field is read.
	Header string
	// Trusted are the networks of your proxies: a request from there counts as one of the client that Header names. List only
	// your own. It must not be empty if there is a Header, unless TrustUnix is set, nor hold all addresses.
	Trusted []netip.Prefix
	// TrustUnix says that connections without an IP address, through a Unix socket, come from a proxy of yours too.
	TrustUnix bool
	// IPv6Bits is the length of the prefix of an IPv6 address that makes a key, 1 to 128, since a client with one address has a
	// whole network of them. If IPv6Bits is 0, it is 64.
	IPv6Bits int
}

// A ClientIP distinguishes clients by their IP addresses. It is made by [NewClientIP], immutable and safe for concurrent use.
//
// An address that is given by a proxy counts only if every hop from it to here is trusted: the field is read from its right
// end, where your own proxies write, and the first address that is not trusted is the client. What a client puts into the
// field itself stands further left and is never read, whatever it is. Where an entry is no address, as with "unknown", an
// obfuscated identifier or garbage, the client is the proxy that passed it on, with which others then share a key. So
// no client can invent keys.
type ClientIP struct {
	header    string // in canonical form; empty if none is read
	forwarded bool   // the header is that of RFC 7239
	trusted   []netip.Prefix
	trustUnix bool
	ipv6Bits  int
}

// NewClientIP returns a ClientIP. If o is nil, it has the defaults. The error names the field that cannot be right.
func NewClientIP(o *ClientIPOptions) (*ClientIP, error) {
	var opts ClientIPOptions
	if o != nil {
		opts = *o
	}
	if opts.IPv6Bits == 0 {
		opts.IPv6Bits = defaultIPv6Bits
	}
	trusting := len(opts.Trusted) > 0 || opts.TrustUnix
	switch {
	case opts.IPv6Bits < 1 || opts.IPv6Bits > 128:
		return nil, fmt.Errorf("httpgate: ClientIP: IPv6Bits: must be 1 to 128, got %d", opts.IPv6Bits)
	case opts.Header != "" && !validField(opts.Header):
		return nil, fmt.Errorf("httpgate: ClientIP: Header: must be a header field, got %q", opts.Header)
	case opts.Header != "" && !trusting:
		return nil, errors.New("httpgate: ClientIP: Trusted: must name the proxies whose Header is believed, got none")
	case opts.Header == "" && trusting:
		return nil, errors.New("httpgate: ClientIP: Header: must name the field that trusted proxies write, got none")
	}
	c := &ClientIP{trustUnix: opts.TrustUnix, ipv6Bits: opts.IPv6Bits}
	if opts.Header != "" {
		c.header = http.CanonicalHeaderKey(opts.Header)
		c.forwarded = c.header == "Forwarded"
	}
	for _, p := range opts.Trusted {
		if p.Addr().Is4In6() {
			p = netip.PrefixFrom(p.Addr().Unmap(), max(p.Bits()-96, 0))
		}
		if p.Bits() < 1 { // 0 if it is all addresses, -1 if it is invalid
			return nil, fmt.Errorf("httpgate: ClientIP: Trusted: must hold networks of at least 1 bit, got %v", p)
		}
		c.trusted = append(c.trusted, p.Masked())
	}
	return c, nil
}

// Addr returns the address of the client that sent r, without a zone, IPv4 in its own form. It is the zero Addr if there
// is none, as with a Unix socket. It allocates nothing, unless for garbage.
func (c *ClientIP) Addr(r *http.Request) netip.Addr { return c.find(r).addr }

// Key returns a key for the client that sent r: its IPv4 address, as "192.0.2.1", or the network of its IPv6 address, as
// "2001:db8:1:2::/64". It is empty if the client has no address, as with a Unix socket. It allocates nothing for IPv4,
// except to let go of a field of more than 64 bytes or if it is written as IPv6, and one string for IPv6.
func (c *ClientIP) Key(r *http.Request) string {
	h := c.find(r)
	switch {
	case !h.addr.IsValid():
		return ""
	case h.addr.Is6():
		network, _ := h.addr.Prefix(c.ipv6Bits) // the length was checked
		var room [48]byte
		return string(network.AppendTo(room[:0]))
	case h.text == "":
		return h.addr.String()
	}
	return h.text
}

// find returns the hop that is the client.
func (c *ClientIP) find(r *http.Request) hop {
	nearest, ok := parseHop(r.RemoteAddr)
	if !ok && !c.trustUnix || ok && !c.trusts(nearest) {
		return nearest
	}
	lines, found := r.Header[c.header], ""
	for i := len(lines) - 1; i >= 0; i-- {
		for left, more := lines[i], true; more; {
			var last string
			left, last, more = cutLast(left, ',', c.forwarded)
			h, ok := c.parse(last)
			if !ok {
				return nearest.within(found)
			}
			if nearest, found = h, lines[i]; !c.trusts(h) {
				return nearest.within(found)
			}
		}
	}
	return nearest.within(found)
}

func (c *ClientIP) parse(element string) (hop, bool) {
	if c.forwarded {
		return parseForwarded(element)
	}
	return parseHop(element)
}

func (c *ClientIP) trusts(h hop) bool {
	for _, p := range c.trusted {
		if p.Contains(h.addr) {
			return true
		}
	}
	return false
}

// A hop is an address on the way of a request.
type hop struct {
	addr netip.Addr // of IPv4, or of IPv6 without a zone
	text string     // an IPv4 address, if it was found as one
}

// longLine is the length from which a key does not hold on to the line that it is a part of.
const longLine = 64

// within returns h, found in line.
func (h hop) within(line string) hop {
	if len(line) > longLine {
		h.text = strings.Clone(h.text)
	}
	return h
}
