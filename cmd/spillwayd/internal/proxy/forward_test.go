package proxy

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/upstream"
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

// A backend may notice before the client that the time of a call is over, and reset it. The client must not retry that.
func TestAResetAfterTheTimeOfTheClientIsADeadline(t *testing.T) {
	for wait, want := range map[time.Duration]int{time.Millisecond: http.StatusBadGateway, time.Second: http.StatusOK} {
		synctest.Test(t, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("call"))
			r.Header.Set("Content-Type", "application/grpc")
			r.Header.Set("Grpc-Timeout", "1S")
			w := httptest.NewRecorder()
			r, body := upstream.WithBody(w, r, 0)
			defer body.End()
			time.Sleep(wait)
			answerError(w, r, errors.New("stream error: CANCEL"))
			require.Equal(t, want, w.Code)
			if want == http.StatusOK {
				require.Equal(t, "4", w.Header().Get("Grpc-Status"))
			}
		})
	}
}
