package httpgate

import (
	"net/netip"
	"strings"
)

// maxAddr is the length of the longest text of an IPv6 address.
const maxAddr = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")

// parseHop returns the address in s, which may have a port, a zone and, for IPv6, brackets: all forms that proxies
// write.
func parseHop(s string) (hop, bool) {
	s, bracketed, ok := cutPort(trimSpace(s))
	if !ok {
		return hop{}, false
	}
	s, _, zoned := strings.Cut(s, "%")
	if len(s) > maxAddr { // an error of netip keeps its input in memory
		return hop{}, false
	}
	addr, err := netip.ParseAddr(s)
	switch {
	case err != nil, addr.Is4() && (zoned || bracketed):
		return hop{}, false
	case addr.Is4():
		return hop{addr, s}, true // it has no other form
	}
	return hop{addr: addr.Unmap()}, true
}

// cutPort returns s without a port and without brackets.
func cutPort(s string) (host string, bracketed, ok bool) {
	if strings.HasPrefix(s, "[") {
		host, port, ok := strings.Cut(s[1:], "]")
		if !ok || port != "" && (port[0] != ':' || !isPort(port[1:])) {
			return "", true, false
		}
		return host, true, true
	}
	host, port, found := strings.Cut(s, ":")
	if !found || strings.Contains(port, ":") { // IPv6 without brackets has no port
		return s, false, true
	}
	return host, false, isPort(port)
}

// isPort reports whether s is a port, or an obfuscated one (RFC 7239).
func isPort(s string) bool {
	if s == "" || s[0] != '_' && len(s) > len("65535") {
		return false
	}
	for _, c := range []byte(s) {
		if s[0] != '_' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// parseForwarded returns the address in an element of Forwarded (RFC 7239), such as
//
//	for="[2001:db8::1]:4711";proto=https
func parseForwarded(element string) (h hop, ok bool) {
	for left, more := element, true; more; {
		var pair string
		left, pair, more = cutLast(left, ';', true)
		name, value, _ := strings.Cut(trimSpace(pair), "=")
		if !strings.EqualFold(name, "for") {
			continue
		}
		if ok { // twice
			return hop{}, false
		}
		if value, ok = unquote(value); !ok {
			return hop{}, false
		}
		if h, ok = parseHop(value); !ok {
			return hop{}, false
		}
	}
	return h, ok
}

// unquote returns the content of a quoted string, or s if it is not quoted. It supports no escapes, because addresses
// need none.
func unquote(s string) (string, bool) {
	if !strings.Contains(s, `"`) {
		return s, true
	}
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return "", false
	}
	s = s[1 : len(s)-1]
	return s, !strings.ContainsAny(s, `"\`)
}

// cutLast returns the text before and after the last sep. If quotes is set, a sep in a quoted string does not count. It
// reads s from its end, so that text further left, such as an unclosed quote, cannot change how the right part is read.
func cutLast(s string, sep byte, quotes bool) (before, last string, found bool) {
	if !quotes {
		i := strings.LastIndexByte(s, sep)
		if i < 0 {
			return "", s, false
		}
		return s[:i], s[i+1:], true
	}
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch s[i] {
		case '"':
			if !quoted || !escaped(s, i) {
				quoted = !quoted
			}
		case sep:
			if !quoted {
				return s[:i], s[i+1:], true
			}
		}
	}
	return "", s, false
}

// escaped reports whether an odd number of backslashes is before s[i].
func escaped(s string, i int) bool {
	odd := false
	for i--; i >= 0 && s[i] == '\\'; i-- {
		odd = !odd
	}
	return odd
}

// trimSpace removes the optional whitespace of header fields.
func trimSpace(s string) string { return strings.Trim(s, " \t") }
