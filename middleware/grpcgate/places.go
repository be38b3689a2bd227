package grpcgate

import (
	"context"
	"net"
	"net/netip"

	"google.golang.org/grpc/peer"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/places"
	"github.com/spillway-go/spillway/stats"
)

// streamPlaces are the places of streams that have left the gate.
type streamPlaces struct {
	*places.Places

	refused stats.Counter
}

func newPlaces(limit int) *streamPlaces { return &streamPlaces{Places: places.New(limit, 0)} }

// holderOf returns the holder that a call to a server belongs to: its key, or the address of its peer if it has none.
func (p *streamPlaces) holderOf(ctx context.Context, r *spillway.Request) places.Holder {
	if r.Key != "" {
		return p.Of(r.Key)
	}
	from, ok := peer.FromContext(ctx)
	if !ok || from.Addr == nil {
		return p.Of("")
	}
	return p.At(hostOf(from.Addr))
}

// hostOf returns the network from which one client may choose its addresses: an IPv4 address, 64 bits of an IPv6
// address, and the zero Prefix for anything else.
func hostOf(addr net.Addr) netip.Prefix {
	ip := addrOf(addr)
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	prefix, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // no IP address
	}
	return prefix
}

// addrOf returns the IP address of addr without a zone, or the zero Addr if it has none.
func addrOf(addr net.Addr) netip.Addr {
	var ip netip.Addr
	if tcp, ok := addr.(*net.TCPAddr); ok {
		ip = tcp.AddrPort().Addr()
	} else if ap, err := netip.ParseAddrPort(addr.String()); err == nil {
		ip = ap.Addr()
	}
	return ip.Unmap().WithZone("")
}

// granted reports whether v is places.Granted, and counts a refusal otherwise.
func (p *streamPlaces) granted(v places.Verdict) bool {
	if v != places.Granted {
		p.refused.Add(1)
	}
	return v == places.Granted
}
