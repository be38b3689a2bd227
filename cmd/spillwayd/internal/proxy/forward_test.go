package proxy

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestForwardedFieldsAreThoseOfSetXForwarded(t *testing.T) {
	for _, remote := range []string{"192.0.2.1:1234", "[2001:db8::1]:1234", "@", ""} {
		for _, state := range []*tls.ConnectionState{nil, {}} {
			in := httptest.NewRequest(http.MethodGet, "http://shop.example/", nil)
			in.RemoteAddr, in.TLS = remote, state
			want := &httputil.ProxyRequest{In: in, Out: in.Clone(t.Context())}
			want.SetXForwarded()
			got := http.Header{}
			setForwarded(in, got)
			require.Equal(t, want.Out.Header, got, "%q", remote)
			got.Add("X-Forwarded-For", "a")
			got.Add("X-Forwarded-Proto", "a")
			require.Equal(t, []string{"shop.example"}, got["X-Forwarded-Host"], "values are not shared")
			require.Len(t, headerHTTP, 1)
		}
	}
}
