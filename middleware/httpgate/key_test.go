package httpgate_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// from returns a request from addr with lines of a field.
func from(addr, field string, lines ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = addr
	if field != "" {
		r.Header[http.CanonicalHeaderKey(field)] = lines
	}
	return r
}

// behind returns a ClientIP that trusts 10.0.0.0/8, 2001:db8:a::/48 and ::ffff:172.16.0.0/108 to write a field.
func behind(t testing.TB, field string) *httpgate.ClientIP {
	t.Helper()
	c, err := httpgate.NewClientIP(&httpgate.ClientIPOptions{
		Header: field,
		Trusted: []netip.Prefix{
			netip.MustParsePrefix("10.1.2.3/8"), netip.MustParsePrefix("2001:db8:a::/48"), netip.MustParsePrefix("::ffff:172.16.0.0/108"),
		},
	})
	require.NoError(t, err)
	return c
}

func TestClientIPWithoutProxies(t *testing.T) {
	c, err := httpgate.NewClientIP(nil)
	require.NoError(t, err)
	for addr, want := range map[string]string{
		"192.0.2.1:4711":              "192.0.2.1",
		"192.0.2.1":                   "192.0.2.1", // as some middleware leaves it
		"[2001:db8:1:2:3:4:5:6]:4711": "2001:db8:1:2::/64",
		"2001:DB8:1:2::":              "2001:db8:1:2::/64",
		"[fe80::1%eth0]:80":           "fe80::/64",
		"[::ffff:192.0.2.1]:80":       "192.0.2.1",
		"[::ffff:c000:201]:80":        "192.0.2.1",
		"[::1]:80":                    "::/64",
		"@":                           "",
		"":                            "",
		"/run/app.sock":               "",
		"192.0.2.256:1":               "",
		"192.0.2.01:1":                "",
		"192.0.2.1:port":              "",
		"192.0.2.1:8/":                "",
		"[::1]:80:":                   "",
		"192.0.2.1%eth0:1":            "",
		"[192.0.2.1]:1":               "",
		"[2001:db8::1]x":              "",
		"[2001:db8::1]:":              "",
		"[2001:db8::1":                "",
		"192.0.2.1:123456":            "",
		strings.Repeat("1", 100):      "",
		"2001:db8::1%" + strings.Repeat("z", 100): "2001:db8::/64",
	} {
		r := from(addr, "X-Forwarded-For", "198.51.100.1")
		r.Header.Set("Forwarded", "for=198.51.100.2")
		r.Header.Set("X-Real-IP", "198.51.100.3")
		require.Equal(t, want, c.Key(r), addr)
		require.Equal(t, want != "", c.Addr(r).IsValid(), addr)
		require.Empty(t, c.Addr(r).Zone(), addr)
	}
}

func TestClientIPBehindProxies(t *testing.T) {
	for name, c := range map[string]struct {
		addr  string
		lines []string
		want  string
	}{
		"not from a proxy":           {"192.0.2.1:1", []string{"198.51.100.1"}, "192.0.2.1"},
		"one proxy":                  {"10.0.0.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		"mapped proxy":               {"[::ffff:10.0.0.1]:1", []string{"198.51.100.1"}, "198.51.100.1"},
		"proxy of a mapped network":  {"172.17.0.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		"two proxies":                {"10.0.0.1:1", []string{"198.51.100.1, 10.0.0.2"}, "198.51.100.1"},
		"two lines":                  {"10.0.0.1:1", []string{"203.0.113.9, 198.51.100.1", "10.0.0.2,2001:db8:a::1"}, "198.51.100.1"},
		"forged by the client":       {"10.0.0.1:1", []string{"10.9.9.9, 203.0.113.9, 198.51.100.1"}, "198.51.100.1"},
		"forged in a line":           {"10.0.0.1:1", []string{"203.0.113.9", "198.51.100.1"}, "198.51.100.1"},
		"with a port":                {"10.0.0.1:1", []string{"198.51.100.1:4711"}, "198.51.100.1"},
		"IPv6":                       {"10.0.0.1:1", []string{"2001:db8:1:2:3::4"}, "2001:db8:1:2::/64"},
		"IPv6 with a port":           {"10.0.0.1:1", []string{"[2001:db8:1:2:3::4]:4711"}, "2001:db8:1:2::/64"},
		"IPv6 with a zone":           {"10.0.0.1:1", []string{"fe80::1%25eth0"}, "fe80::/64"},
		"mapped":                     {"10.0.0.1:1", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		"tabs and spaces":            {"10.0.0.1:1", []string{"\t198.51.100.1 ,\t 10.0.0.2 "}, "198.51.100.1"},
		"no field":                   {"10.0.0.1:1", nil, "10.0.0.1"},
		"empty field":                {"10.0.0.1:1", []string{""}, "10.0.0.1"},
		"unknown":                    {"10.0.0.1:1", []string{"unknown"}, "10.0.0.1"},
		"garbage behind a proxy":     {"10.0.0.1:1", []string{"198.51.100.1, x, 10.0.0.2"}, "10.0.0.2"},
		"empty entry":                {"10.0.0.1:1", []string{"198.51.100.1,, 10.0.0.2"}, "10.0.0.2"},
		"garbage left of the client": {"10.0.0.1:1", []string{"<script>,\",\x00, 198.51.100.1"}, "198.51.100.1"},
		"all are proxies":            {"10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		"from a Unix socket":         {"@", []string{"198.51.100.1"}, ""},
		"a very long field":          {"10.0.0.1:1", []string{strings.Repeat("203.0.113.9, ", 100) + "198.51.100.1, 10.0.0.7"}, "198.51.100.1"},
	} {
		require.Equal(t, c.want, behind(t, "x-forwarded-for").Key(from(c.addr, "X-Forwarded-For", c.lines...)), name)
		// Another field with the same syntax, and that of the first is not looked at.
		r := from(c.addr, "X-Client", c.lines...)
		r.Header.Set("X-Forwarded-For", "203.0.113.1")
		require.Equal(t, c.want, behind(t, "X-Client").Key(r), name)
	}
}

func TestClientIPByForwarded(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"token":                         {[]string{"for=198.51.100.1"}, "198.51.100.1"},
		"any case, any order":           {[]string{"proto=https;by=10.0.0.1;FOR=198.51.100.1"}, "198.51.100.1"},
		"quoted":                        {[]string{`for="198.51.100.1:4711"`}, "198.51.100.1"},
		"IPv6":                          {[]string{`for="[2001:db8:1:2:3::4]"`}, "2001:db8:1:2::/64"},
		"IPv6 with obfuscated port":     {[]string{`for="[2001:db8:1:2:3::4]:_p-0.x"`}, "2001:db8:1:2::/64"},
		"not quite the grammar":         {[]string{"for=[2001:db8:1:2:3::4]:80"}, "2001:db8:1:2::/64"},
		"several hops":                  {[]string{"for=203.0.113.9, for=198.51.100.1;proto=http", "for=10.0.0.3 , for=10.0.0.2"}, "198.51.100.1"},
		"quoted separators":             {[]string{`for=198.51.100.1;by="a,b;for=203.0.113.9\",\\", for=10.0.0.2;host="x, for=203.0.113.8"`}, "198.51.100.1"},
		"empty pairs":                   {[]string{";;for=198.51.100.1; "}, "198.51.100.1"},
		"open quote on the left":        {[]string{`for="203.0.113.9, for=198.51.100.1`}, "198.51.100.1"},
		"open quote that would swallow": {[]string{`for=203.0.113.9;x=", for=198.51.100.1;by="10.0.0.1"`}, "198.51.100.1"},
		"escape on the left":            {[]string{`for=203.0.113.9;x="\, for=198.51.100.1`}, "198.51.100.1"},
		"no field":                      {nil, "10.0.0.1"},
		"no for":                        {[]string{"for=198.51.100.1, proto=https"}, "10.0.0.1"},
		"two for":                       {[]string{"for=198.51.100.1;for=198.51.100.2"}, "10.0.0.1"},
		"unknown":                       {[]string{"for=198.51.100.1, for=unknown"}, "10.0.0.1"},
		"obfuscated":                    {[]string{"for=198.51.100.1, for=_hidden"}, "10.0.0.1"},
		"escaped":                       {[]string{`for="198.51.100\.1"`}, "10.0.0.1"},
		"quote in the middle":           {[]string{`for=19"8.51.100.1"`}, "10.0.0.1"},
		"one quote":                     {[]string{`for="`}, "10.0.0.1"},
		"space in a pair":               {[]string{"for =198.51.100.1"}, "10.0.0.1"},
		"as in the other field":         {[]string{"198.51.100.1"}, "10.0.0.1"},
		"empty":                         {[]string{""}, "10.0.0.1"},
	} {
		require.Equal(t, c.want, behind(t, "forwarded").Key(from("10.0.0.1:1", "Forwarded", c.lines...)), name)
	}
}

func TestClientIPBehindUnixSocket(t *testing.T) {
	c, err := httpgate.NewClientIP(&httpgate.ClientIPOptions{Header: "X-Forwarded-For", TrustUnix: true})
	require.NoError(t, err)
	require.Equal(t, "198.51.100.1", c.Key(from("@", "X-Forwarded-For", "198.51.100.1")))
	require.Equal(t, "192.0.2.1", c.Key(from("192.0.2.1:1", "X-Forwarded-For", "198.51.100.1")))
	require.Empty(t, c.Key(from("@", "X-Forwarded-For", "x")))
	require.Empty(t, c.Key(from("@", "")))
}

func TestClientIPOfShorterAndLongerNetworks(t *testing.T) {
	for bits, want := range map[int]string{48: "2001:db8:1::/48", 56: "2001:db8:1::/56", 128: "2001:db8:1:2::3/128", 1: "::/1"} {
		c, err := httpgate.NewClientIP(&httpgate.ClientIPOptions{IPv6Bits: bits})
		require.NoError(t, err)
		require.Equal(t, want, c.Key(from("[2001:db8:1:2::3]:1", "")))
	}
}

func TestInvalidClientIPOptions(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for want, o := range map[string]httpgate.ClientIPOptions{
		"IPv6Bits: must be 1 to 128, got -1":                                   {IPv6Bits: -1},
		"IPv6Bits: must be 1 to 128, got 129":                                  {IPv6Bits: 129},
		`Header: must be a header field, got "X Forwarded"`:                    {Header: "X Forwarded", Trusted: trusted},
		`Header: must be a header field, got "host"`:                           {Header: "host", Trusted: trusted},
		"Trusted: must name the proxies whose Header is believed, got none":    {Header: "Forwarded"},
		"Header: must name the field that trusted proxies write, got none":     {Trusted: trusted},
		"Trusted: must hold networks of at least 1 bit, got invalid Prefix":    {Header: "Forwarded", Trusted: []netip.Prefix{{}}},
		"Trusted: must hold networks of at least 1 bit, got 0.0.0.0/0":         {Header: "Forwarded", Trusted: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}},
		"Trusted: must hold networks of at least 1 bit, got ::/0":              {Header: "Forwarded", Trusted: append(trusted, netip.MustParsePrefix("::/0"))},
		"Trusted: must hold networks of at least 1 bit, got 255.255.255.255/0": {Header: "Forwarded", Trusted: []netip.Prefix{netip.MustParsePrefix("::ffff:255.255.255.255/90")}},
	} {
		_, err := httpgate.NewClientIP(&o)
		require.EqualError(t, err, "httpgate: ClientIP: "+want)
	}
}

func TestHeaderKey(t *testing.T) {
	key := httpgate.HeaderKey("x-tenant")
	require.Equal(t, "blue", key(from("192.0.2.1:1", "X-Tenant", "blue")))
	require.Empty(t, key(from("192.0.2.1:1", "X-Tenant", "blue", "red")))
	require.Empty(t, key(from("192.0.2.1:1", "X-User", "blue")))
	for _, name := range []string{"", "Host", "host", "X Tenant", "X-Tenant:", "Ténant", "X[", "X@", "X{", "X/"} {
		require.Panics(t, func() { httpgate.HeaderKey(name) }, name)
	}
}

func TestPatternKey(t *testing.T) {
	var inside string
	mux := http.NewServeMux()
	note := func(_ http.ResponseWriter, r *http.Request) { inside = httpgate.PatternKey(nil)(r) }
	mux.HandleFunc("GET /items/{id}", note)
	mux.HandleFunc("/files/", note)
	for path, want := range map[string]string{"/items/1": "GET /items/{id}", "/items/2": "GET /items/{id}", "/files/a/b": "/files/", "/nowhere": "", "/items/1/x": ""} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		require.Equal(t, want, httpgate.PatternKey(mux)(r), path)
		require.Empty(t, httpgate.PatternKey(nil)(r), path)
		inside = ""
		mux.ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, want, inside, path)
	}

	// Within another mux, the one that is asked counts.
	r := httptest.NewRequest(http.MethodGet, "/items/1", nil)
	r.Pattern = "/"
	require.Equal(t, "GET /items/{id}", httpgate.PatternKey(mux)(r))
	require.Equal(t, "/", r.Pattern)
}

func TestKeyBy(t *testing.T) {
	tenant, ip := httpgate.HeaderKey("X-Tenant"), behind(t, "X-Forwarded-For").Key
	r := from("10.0.0.1:1", "X-Forwarded-For", "198.51.100.1")
	r.Header.Set("X-Tenant", "blue")
	require.Equal(t, spillway.Request{Key: "blue"}, httpgate.KeyBy(tenant)(r))
	require.Equal(t, spillway.Request{Key: "blue\x1f198.51.100.1"}, httpgate.KeyBy(tenant, ip)(r))

	keys := []func(*http.Request) string{tenant, ip, tenant}
	by := httpgate.KeyBy(keys...)
	keys[0], keys[1] = nil, nil
	require.Equal(t, spillway.Request{Key: "blue\x1f198.51.100.1\x1fblue"}, by(r))

	require.PanicsWithValue(t, "httpgate: KeyBy: keys: must be at least 1, got 0", func() { httpgate.KeyBy() })
	require.PanicsWithValue(t, "httpgate: KeyBy: keys: key 1 is nil", func() { httpgate.KeyBy(tenant, nil) })
}

func TestFirstKey(t *testing.T) {
	tenant, user := httpgate.HeaderKey("X-Tenant"), httpgate.HeaderKey("X-User")
	ip := spillway.Must(httpgate.NewClientIP(nil)).Key
	first := httpgate.FirstKey(tenant, user, ip)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "198.51.100.1:99"
	require.Equal(t, "\x1f\x1f198.51.100.1", first(r))
	r.Header.Set("X-User", "198.51.100.1")
	require.Equal(t, "\x1f198.51.100.1", first(r), "a user is no address")
	r.Header.Set("X-Tenant", "198.51.100.1")
	require.Equal(t, "198.51.100.1", first(r), "nor is a tenant")
	require.Zero(t, testing.AllocsPerRun(100, func() { first(r) }))
	require.Empty(t, httpgate.FirstKey(user, user)(httptest.NewRequest(http.MethodGet, "/", nil)))
	require.PanicsWithValue(t, "httpgate: FirstKey: keys: must be at least 1, got 0", func() { httpgate.FirstKey() })
	require.PanicsWithValue(t, "httpgate: FirstKey: keys: key 1 is nil", func() { httpgate.FirstKey(tenant, nil) })
}

// A part that holds a separator is no other combination of parts.
func TestKeysOfDifferentPartsDiffer(t *testing.T) {
	parts := []string{"", "a", "b", "\x1f", "\x1e", "\x1e_", "\x1f\x1f", "a\x1fb", "a\x1eb", "b\x1f", "\x1fb", "\x1e\x1e_"}
	joined, first := map[string][2]string{}, map[string][2]string{}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, a := range parts {
		for _, b := range parts {
			of := func(s string) func(*http.Request) string { return func(*http.Request) string { return s } }
			key := httpgate.KeyBy(of(a), of(b))(r).Key
			require.NotContains(t, joined, key, "%q and %q", a, b)
			joined[key] = [2]string{a, b}
			if a != "" {
				b = ""
			}
			key = httpgate.FirstKey(of(a), of(b))(r)
			if had, ok := first[key]; ok {
				require.Equal(t, [2]string{a, b}, had)
			}
			first[key] = [2]string{a, b}
		}
	}
}
