// Package priority reads priorities that arrive from outside: who may set them, what the numbers mean, and within which
// bounds they count.
//
//	rule, err := priority.New("httpgate", priority.Rule{Trusted: proxies})
//	if rule.Trusts(addr) {
//		p, ok := rule.Parse(header)
//	}
package priority

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/spillway-go/spillway"
)

// A Rule says whose priorities count, and how. It is made by [New].
type Rule struct {
	Trusted   []netip.Prefix
	TrustUnix bool // peers without an IP address
	Lower     bool // lower numbers are more important
	Zero      int  // the number that means Normal: NormalIs of the packages' options
	Min, Max  spillway.Priority
}

// New returns r in the form that its methods need, or an error that names the invalid field after the name of the
// package. If Min and Max are both 0, they are Sheddable and Critical.
func New(pkg string, r Rule) (*Rule, error) {
	if r.Min == 0 && r.Max == 0 {
		r.Min, r.Max = spillway.Sheddable, spillway.Critical
	}
	if r.Min > r.Max {
		return nil, fmt.Errorf("%s: Priority: Min must not be above Max, which is %v, got %v", pkg, r.Max, r.Min)
	}
	if r.Zero < -mostZero || r.Zero > mostZero {
		return nil, fmt.Errorf("%s: Priority: NormalIs must be in %d..%d, got %d", pkg, -mostZero, mostZero, r.Zero)
	}
	trusted := make([]netip.Prefix, 0, len(r.Trusted))
	for _, p := range r.Trusted {
		if p.Addr().Is4In6() {
			p = netip.PrefixFrom(p.Addr().Unmap(), max(p.Bits()-96, 0))
		}
		if p.Bits() < 1 { // 0 if it is all addresses, -1 if it is invalid
			return nil, fmt.Errorf("%s: Priority: Trusted must hold networks of at least 1 bit, got %v", pkg, p)
		}
		trusted = append(trusted, p.Masked())
	}
	r.Trusted = trusted
	return &r, nil
}

// mostZero bounds NormalIs, so that no difference overflows.
const mostZero = 1 << 20

// Trusts reports whether the priorities of a peer count. The zero Addr is a peer without an IP address.
func (r *Rule) Trusts(peer netip.Addr) bool {
	if !peer.IsValid() {
		return r.TrustUnix
	}
	peer = peer.Unmap().WithZone("")
	for _, p := range r.Trusted {
		if p.Contains(peer) {
			return true
		}
	}
	return false
}

// longest is the length of the longest text that is read.
const longest = 32

// Parse returns the priority in text, within the bounds: an integer, or the text of [spillway.Priority]. It
// reports false if text is neither.
func (r *Rule) Parse(text string) (spillway.Priority, bool) {
	text = strings.Trim(text, " \t")
	if text == "" || len(text) > longest {
		return 0, false
	}
	if n, ok := integer(text); ok {
		n -= r.Zero
		if r.Lower {
			n = -n
		}
		return r.Clamp(spillway.Priority(n)), true
	}
	if !strings.HasPrefix(text, "critical") && !strings.HasPrefix(text, "normal") && !strings.HasPrefix(text, "sheddable") {
		return 0, false // an error costs allocations
	}
	var p spillway.Priority
	if p.UnmarshalText([]byte(text)) != nil {
		return 0, false
	}
	return r.Clamp(p), true
}

// Clamp returns p within the bounds.
func (r *Rule) Clamp(p spillway.Priority) spillway.Priority { return min(max(p, r.Min), r.Max) }

// most is the size of the greatest integer that is read as it is; greater ones count as it.
const most = 1 << 30

// integer parses a decimal integer with an optional sign, and allocates nothing.
func integer(text string) (n int, ok bool) {
	sign := 1
	switch text[0] {
	case '-':
		sign, text = -1, text[1:]
	case '+':
		text = text[1:]
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = min(10*n+int(c-'0'), most)
	}
	return sign * n, text != ""
}

// Urgency returns the priority in a Priority header field of RFC 9218: u=0, the most urgent, is 3, the default
// u=3 is Normal, and u=7 is Sheddable. It reports false if the line has no valid u.
func (r *Rule) Urgency(line string) (p spillway.Priority, ok bool) {
	for more := true; more; {
		var member string
		member, line, more = strings.Cut(line, ",")
		member, _, _ = strings.Cut(member, ";")
		member = strings.Trim(member, " \t")
		if len(member) == len("u=0") && member[:2] == "u=" && member[2] >= '0' && member[2] <= '7' {
			p, ok = r.Clamp(spillway.Priority('3')-spillway.Priority(member[2])), true
		}
	}
	return p, ok
}
