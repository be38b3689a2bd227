package listen

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFloodsAreShutOut(t *testing.T) {
	f := floods{most: 3}
	now := time.Unix(1_700_000_000, 0)
	one, two := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/64")
	for range 3 {
		require.False(t, f.add(now, one))
	}
	require.False(t, f.shuts(now, one))
	require.True(t, f.add(now, one), "the fourth in a second")
	require.True(t, f.shuts(now.Add(shutOut-1), one))
	require.False(t, f.add(now, two), "others stay")
	now = now.Add(shutOut)
	require.False(t, f.shuts(now, one))
	for range 10 { // three in each second for ever
		for range 3 {
			require.False(t, f.add(now, one))
		}
		now = now.Add(time.Second)
	}
	require.Empty(t, f.out)
}

// The memory is bounded, whatever the number of clients.
func TestFloodsOfManyClients(t *testing.T) {
	f := floods{most: 1}
	now, ip := time.Unix(1_700_000_000, 0), netip.MustParseAddr("10.0.0.0")
	flood := func(n int) (last netip.Prefix) {
		for range n {
			last = network(ip)
			require.False(t, f.add(now, last))
			require.True(t, f.add(now, last))
			ip = ip.Next()
		}
		return last
	}
	last := flood(maxShutOut + 10)
	require.Len(t, f.out, maxShutOut)
	require.False(t, f.shuts(now, last), "there was no room")
	now = now.Add(shutOut)
	last = flood(10)
	require.Len(t, f.out, 10)
	require.Len(t, f.counts, 10)
	require.True(t, f.shuts(now, last))
}
