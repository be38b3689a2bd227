package httpgate_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

func TestHostKeyIsNormalised(t *testing.T) {
	for address, want := range map[string]string{
		"http://example.com/":              "example.com",
		"http://EXAMPLE.com/":              "example.com",
		"http://example.com:80/":           "example.com",
		"https://example.com:443/":         "example.com",
		"HTTPS://Example.COM:443/":         "example.com",
		"http://example.com:443/":          "example.com:443",
		"https://example.com:80/":          "example.com:80",
		"http://example.com:8080/":         "example.com:8080",
		"http://example.com./":             "example.com",
		"http://example.com.:80/":          "example.com",
		"http://example.com.:8080/":        "example.com:8080",
		"http://example.com:/":             "example.com",
		"http://user:pw@example.com/":      "example.com",
		"http://[::1]/":                    "[::1]",
		"http://[::1]:80/":                 "[::1]",
		"http://[FE80::80]/":               "[fe80::80]",
		"https://[::1]:8443/":              "[::1]:8443",
		"http://127.0.0.1:8080/path?q=:80": "127.0.0.1:8080",
	} {
		p := &gatetest.Recorder{}
		u, err := url.Parse(address)
		require.NoError(t, err)
		_, err = transport(t, responding(http.StatusOK, http.NoBody), nil, p).RoundTrip(&http.Request{URL: u})
		require.NoError(t, err)
		require.Equal(t, want, p.Requests()[0].Key, address)
	}
}

func FuzzHostKey(f *testing.F) {
	f.Add("http", "Example.com.:80")
	f.Add("https", "[::1]:443")
	f.Fuzz(func(t *testing.T, scheme, host string) {
		once := httpgate.HostKey(&http.Request{URL: &url.URL{Scheme: scheme, Host: host}})
		require.Equal(t, strings.ToLower(once), once)
		require.LessOrEqual(t, len(once), 3*len(host)) // lower case may take more bytes
	})
}
