package httpgate_test

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// An entry is one hop that a proxy wrote, and what a plain reading makes of it: the key, and whether the hop is trusted.
type entry struct {
	text    string
	key     string // empty if it is garbage
	trusted bool
}

var addresses = []entry{
	{"198.51.100.7", "198.51.100.7", false},
	{"203.0.113.9", "203.0.113.9", false},
	{"::ffff:198.51.100.8", "198.51.100.8", false},
	{"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64", false},
	{"2001:DB8:1:2::", "2001:db8:1:2::/64", false},
	{"10.0.0.2", "10.0.0.2", true},
	{"172.31.255.255", "172.31.255.255", true},
	{"::ffff:a00:3", "10.0.0.3", true},
	{"2001:db8:a:b::1", "2001:db8:a:b::/64", true},
}

var garbage = []string{"", "unknown", "_x", "1.2.3", "1.2.3.4.5", "999.1.1.1", "01.2.3.4", "[::1", "::1]", "1.2.3.4:", ":80", "a.example:80", "\"", `"\"`, "for=", "=", ";"}

// randomEntry returns an address as some proxy would write it, or garbage.
func randomEntry(rnd *rand.Rand, forwarded bool) entry {
	if rnd.IntN(8) == 0 {
		g := garbage[rnd.IntN(len(garbage))]
		if forwarded {
			g = "for=" + strings.Trim(g, `";`)
		}
		return entry{text: g}
	}
	e := addresses[rnd.IntN(len(addresses))]
	v6 := strings.Contains(e.text, ":")
	if port := rnd.IntN(3) == 0; v6 && (forwarded || port) {
		e.text = "[" + e.text + "]"
		if port {
			e.text += ":443"
		}
	} else if port {
		e.text += ":51234"
	}
	if forwarded {
		if v6 || rnd.IntN(2) == 0 {
			e.text = `"` + e.text + `"`
		}
		e.text = []string{"for=", "For="}[rnd.IntN(2)] + e.text
		others := []string{"proto=https", `by="[::1]:80"`, `host="a,b"`, `x="\",for=9.9.9.9;\\"`, ""}
		if rnd.IntN(2) == 0 {
			e.text += ";" + others[rnd.IntN(len(others))]
		}
		if rnd.IntN(2) == 0 {
			e.text = others[rnd.IntN(len(others))] + " ; " + e.text
		}
	}
	return e
}

// The client, read from left to right as anybody would who knows the hops, is who ClientIP says it is.
func TestClientIPAgainstPlainReading(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	for field, c := range map[string]*httpgate.ClientIP{
		"X-Forwarded-For": behind(t, "X-Forwarded-For"), "Forwarded": behind(t, "Forwarded"),
	} {
		for range 20_000 {
			var lines []string
			want := "10.0.0.1"
			decided := false
			hops := make([]entry, rnd.IntN(6))
			for i := range hops {
				hops[i] = randomEntry(rnd, field == "Forwarded")
				if i == 0 || rnd.IntN(4) == 0 {
					lines = append(lines, hops[i].text)
				} else {
					lines[len(lines)-1] += []string{",", ", ", " ,\t"}[rnd.IntN(3)] + hops[i].text
				}
			}
			for i := len(hops) - 1; i >= 0 && !decided; i-- {
				if hops[i].key == "" {
					break
				}
				want, decided = hops[i].key, !hops[i].trusted
			}
			require.Equal(t, want, c.Key(from("10.0.0.1:80", field, lines...)), "%s: %q", field, lines)
		}
	}
}

// checkKey fails unless key is empty, an IPv4 address or the network of an IPv6 address, in its usual form.
func checkKey(t *testing.T, key string) {
	t.Helper()
	if key == "" {
		return
	}
	if network, err := netip.ParsePrefix(key); err == nil {
		require.True(t, network.Addr().Is6() && !network.Addr().Is4In6() && network.Bits() == 64 && network == network.Masked(), key)
		require.Equal(t, network.String(), key)
		return
	}
	addr, err := netip.ParseAddr(key)
	require.NoError(t, err)
	require.True(t, addr.Is4(), key)
	require.Equal(t, addr.String(), key)
}

// Whatever a client puts to the left of what the proxy writes, its key is the same.
func FuzzClientIP(f *testing.F) {
	for _, s := range []string{"", "198.51.100.1", "10.0.0.2", `for="[2001:db8::1]:80"`, `"`, `\`, `for="10.0.0.2;by="`, "for=10.0.0.2,", "::ffff:10.0.0.2%z"} {
		f.Add(s, "192.0.2.1:80")
		f.Add("for=10.0.0.2", s)
	}
	list, forwarded := behind(f, "X-Forwarded-For"), behind(f, "Forwarded")
	f.Fuzz(func(t *testing.T, forged, addr string) {
		for c, written := range map[*httpgate.ClientIP]string{list: "198.51.100.7", forwarded: `for="198.51.100.7";host="a, for=b;\""`} {
			field := "X-Forwarded-For"
			if c == forwarded {
				field = "Forwarded"
			}
			require.Equal(t, "198.51.100.7", c.Key(from("10.0.0.1:80", field, forged+", "+written)))
			require.Equal(t, "198.51.100.7", c.Key(from("10.0.0.1:80", field, forged, written, `for=10.0.0.2`[4*btoi(c == list):])))

			// A proxy that passes the field on as it is makes keys that are addresses, whatever the field holds.
			key := c.Key(from("10.0.0.1:80", field, forged))
			require.NotEmpty(t, key)
			checkKey(t, key)
			// So does the address of the connection.
			checkKey(t, c.Key(from(addr, field)))
			require.Equal(t, c.Key(from(addr, field)) != "", c.Addr(from(addr, field)).IsValid())
		}
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestKeysAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	list, forwarded, direct := behind(t, "X-Forwarded-For"), behind(t, "Forwarded"), spareClientIP(t)
	tenant := httpgate.HeaderKey("X-Tenant")
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", http.NotFoundHandler())
	for name, c := range map[string]struct {
		key  func(r *http.Request) string
		r    *http.Request
		most float64
	}{
		"IPv4":                {direct.Key, from("192.0.2.1:80", ""), 0},
		"IPv4 by a proxy":     {list.Key, from("10.0.0.1:80", "X-Forwarded-For", "198.51.100.1, 10.0.0.2"), 0},
		"IPv4 in a long list": {list.Key, from("10.0.0.1:80", "X-Forwarded-For", strings.Repeat("198.51.100.1, ", 9)+"10.0.0.2"), 1},
		"IPv4 by Forwarded":   {forwarded.Key, from("10.0.0.1:80", "Forwarded", `for="198.51.100.1:80";proto=https, for=10.0.0.2`), 0},
		"mapped":              {list.Key, from("10.0.0.1:80", "X-Forwarded-For", "::ffff:198.51.100.1"), 1},
		"IPv6":                {direct.Key, from("[2001:db8:1:2:3:4:5:6]:80", ""), 1},
		"IPv6 by Forwarded":   {forwarded.Key, from("10.0.0.1:80", "Forwarded", `for="[2001:db8:1:2:3:4:5:6]:80"`), 1},
		"header":              {tenant, from("192.0.2.1:80", "X-Tenant", "blue"), 0},
		"pattern inside":      {httpgate.PatternKey(nil), from("192.0.2.1:80", ""), 0},
		"pattern outside":     {httpgate.PatternKey(mux), httptest.NewRequest(http.MethodGet, "/items/1", nil), 2},
	} {
		var key string
		got := testing.AllocsPerRun(200, func() { key = c.key(c.r) })
		require.LessOrEqual(t, got, c.most, "%s: %q", name, key)
	}
	both := httpgate.KeyBy(tenant, direct.Key)
	r := from("192.0.2.1:80", "X-Tenant", "blue")
	require.LessOrEqual(t, testing.AllocsPerRun(200, func() { sink = both(r).Key }), 1.0)
	require.LessOrEqual(t, testing.AllocsPerRun(200, func() { sinkAddr = list.Addr(from6) }), 0.0)
}

var (
	sink     string
	sinkAddr netip.Addr
	from6    = from("10.0.0.1:80", "X-Forwarded-For", "2001:db8:1:2:3:4:5:6")
)

func spareClientIP(t testing.TB) *httpgate.ClientIP {
	t.Helper()
	c, err := httpgate.NewClientIP(nil)
	require.NoError(t, err)
	return c
}

func BenchmarkKey(b *testing.B) {
	list, forwarded, direct := behind(b, "X-Forwarded-For"), behind(b, "Forwarded"), spareClientIP(b)
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", http.NotFoundHandler())
	for _, c := range []struct {
		name string
		key  func(r *http.Request) string
		r    *http.Request
	}{
		{"IPv4", direct.Key, from("192.0.2.1:80", "")},
		{"IPv6", direct.Key, from("[2001:db8:1:2:3:4:5:6]:80", "")},
		{"XForwardedFor", list.Key, from("10.0.0.1:80", "X-Forwarded-For", "198.51.100.1, 10.0.0.2")},
		{"Forwarded", forwarded.Key, from("10.0.0.1:80", "Forwarded", `for="198.51.100.1:80";proto=https, for=10.0.0.2`)},
		{"Header", httpgate.HeaderKey("X-Tenant"), from("192.0.2.1:80", "X-Tenant", "blue")},
		{"Pattern", httpgate.PatternKey(mux), httptest.NewRequest(http.MethodGet, "/items/1", nil)},
	} {
		b.Run(c.name+"/serial", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink = c.key(c.r)
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				var key string
				for pb.Next() {
					key = c.key(c.r)
				}
				_ = key
			})
		})
	}
}
