package grpcgate

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/peer"

	"github.com/spillway-go/spillway"
)

// text is an address that is known by its text alone.
type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

func TestHolderOfACall(t *testing.T) {
	p := newPlaces(1)
	of := func(key string, addr net.Addr) holder {
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

// One client alone gets half of the places, and each newcomer half of what is left.
func TestPlacesLeaveRoomForNewcomers(t *testing.T) {
	p := newPlaces(1000)
	var got []int
	for h := range holder(12) {
		n := 0
		for p.take(h) {
			n++
		}
		got = append(got, n)
	}
	require.Equal(t, []int{500, 250, 125, 63, 31, 16, 8, 4, 2, 1, 0, 0}, got)
	require.Equal(t, int64(12), p.refused.Value())
	require.True(t, p.full(0))
	require.Equal(t, int64(13), p.refused.Value())
	for range 500 {
		p.giveBack(0)
	}
	require.False(t, p.full(11))
	require.Equal(t, int64(500), p.taken.Load())
	require.True(t, p.tryTake(11))
}

// Random takes and returns, against the rule in words.
func TestPlacesModel(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		limit := 1 + rng.IntN(40)
		p := newPlaces(limit)
		held, all := map[holder]int{}, 0
		for range 5000 {
			h := holder(rng.IntN(20))
			if rng.IntN(3) > 0 {
				want := held[h] < limit-all
				require.Equal(t, want, p.tryTake(h))
				if want {
					held[h]++
					all++
				}
			} else if held[h] > 0 {
				p.giveBack(h)
				held[h]--
				all--
			}
			require.Equal(t, int64(all), p.taken.Load())
			require.LessOrEqual(t, all, limit)
		}
		for h, n := range held {
			for range n {
				p.giveBack(h)
			}
		}
		for i := range p.shards {
			require.Empty(t, p.shards[i].held, "clients that are gone are forgotten")
		}
	}
}

func TestPlacesUnderContention(t *testing.T) {
	p := newPlaces(8)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 2000 {
				if h := holder(i % 5); p.take(h) {
					if n := p.taken.Load(); n > 8 {
						t.Errorf("%d of 8 places are taken", n)
					}
					p.giveBack(h)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, p.taken.Load())
	require.True(t, p.take(1))
}
