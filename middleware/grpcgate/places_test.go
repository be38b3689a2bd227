package grpcgate

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/peer"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/places"
)

// text is an address that is known by its text alone.
type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

func TestHolderOfACall(t *testing.T) {
	p := newPlaces(1)
	of := func(key string, addr net.Addr) places.Holder {
		ctx := context.Background()
		if addr != nil {
			ctx = peer.NewContext(ctx, &peer.Peer{Addr: addr})
		}
		return p.holderOf(ctx, &spillway.Request{Key: key})
	}
	tcp := func(ip string, port int) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }
	require.Equal(t, of("", tcp("192.0.2.1", 1)), of("", tcp("192.0.2.1", 2)), "whatever the port")
	require.NotEqual(t, of("", tcp("192.0.2.1", 1)), of("", tcp("192.0.2.2", 1)))
	require.Equal(t, of("", tcp("192.0.2.1", 1)), of("", textAddr("192.0.2.1:7")), "behind net/http")
	require.Equal(t, of("", tcp("192.0.2.1", 1)), of("", textAddr("[::ffff:192.0.2.1]:7")))
	require.Equal(t, of("", tcp("2001:db8::1", 1)), of("", tcp("2001:db8::ffff:2", 1)), "a network of 64 bits is one client")
	require.NotEqual(t, of("", tcp("2001:db8::1", 1)), of("", tcp("2001:db8:0:1::1", 1)))
	require.Equal(t, of("", textAddr("[fe80::1%eth0]:7")), of("", textAddr("[fe80::1%eth1]:7")), "a zone is none")
	require.Equal(t, of("", textAddr("bufconn")), of("", textAddr("@")), "no address")
	require.Equal(t, of("a", tcp("192.0.2.1", 1)), of("a", tcp("192.0.2.2", 1)), "the key counts alone")
	require.NotEqual(t, of("a", nil), of("b", nil))
	require.Equal(t, of("", nil), of("", nil))
	require.NotPanics(t, func() { of("", (*net.TCPAddr)(nil)) })
}
