package proxy

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"sync"

	"github.com/spillway-go/spillway/internal/orca"
)

// peers knows which proxies in front are trusted.
type peers struct {
	trusted  []netip.Prefix
	priority string // header field with the priority
}

// rewrite prepares a request for the backend. ReverseProxy has removed the hop-by-hop fields and what clients say about the way of
// the request. The words of a trusted peer are put back.
func (p *peers) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out
	trusted := p.trusts(in.RemoteAddr)
	if trusted {
		if chain, given := in.Header["X-Forwarded-For"]; given {
			out.Header["X-Forwarded-For"] = chain
		}
	}
	if trusted {
		pr.SetXForwarded()
		for _, field := range [...]string{"X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
			if said, given := in.Header[field]; given {
				out.Header[field] = said
			}
		}
	} else {
		setForwarded(in, out.Header)
		delete(out.Header, p.priority) // the backend trusts the proxy
	}
	out.Header[orca.Format] = headerText             // some servers report their load only if asked
	out.URL.Scheme, out.URL.Host = "http", "backend" // the pool chooses one
	out.URL.RawQuery = in.URL.RawQuery               // as it came: the proxy reads no parameters
}

// Values of fields that all requests share. Their capacity is their length, so that others who add values copy them.
var (
	headerText  = []string{"text"}
	headerHTTP  = []string{"http"}
	headerHTTPS = []string{"https"}
)

// setForwarded does what [httputil.ProxyRequest.SetXForwarded] does for a request without such fields, with one allocation.
func setForwarded(in *http.Request, out http.Header) {
	values := &[2]string{1: in.Host}
	if ip, _, err := net.SplitHostPort(in.RemoteAddr); err == nil {
		values[0] = ip
		out["X-Forwarded-For"] = values[0:1:1]
	}
	out["X-Forwarded-Host"] = values[1:2:2]
	out["X-Forwarded-Proto"] = headerHTTP
	if in.TLS != nil {
		out["X-Forwarded-Proto"] = headerHTTPS
	}
}

// trusts reports whether the peer at address is a trusted proxy.
func (p *peers) trusts(address string) bool {
	if len(p.trusted) == 0 {
		return false
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return false
	}
	ip := at.Addr().Unmap().WithZone("")
	for _, network := range p.trusted {
		if network.Contains(ip) {
			return true
		}
	}
	return false
}

// buffers is a pool of buffers for bodies.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10 // as much as ReverseProxy would allocate for each answer

// Get returns a buffer.
func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return buf[:]
	}
	return make([]byte, bufferSize)
}

// Put takes a buffer back.
func (b *buffers) Put(buf []byte) {
	if len(buf) == bufferSize {
		b.pool.Put((*[bufferSize]byte)(buf))
	}
}
