package console

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// local reports whether a request comes from this machine and was meant for it. The Host is checked because a foreign page can
// make its own name resolve to the loopback (DNS rebinding). The header fields are checked because the peer of a forwarded
// request is the proxy.
func local(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback() && localHost(r.Host)
}

// localHost reports whether a Host, with or without a port, names the loopback.
func localHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}
