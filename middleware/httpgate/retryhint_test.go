package httpgate_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

func TestTransportHandsTheServersWishToThePolicies(t *testing.T) {
	for _, tt := range []struct {
		status int
		header string
		want   time.Duration
	}{
		{http.StatusServiceUnavailable, "120", 2 * time.Minute},
		{http.StatusTooManyRequests, "1", time.Second},
		{http.StatusTooManyRequests, "-1", 0},
		{http.StatusServiceUnavailable, "abc", 0},
		{http.StatusServiceUnavailable, "99999999999", 24 * time.Hour},
		{http.StatusOK, "120", 0},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", tt.header)
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, "busy")
		}))
		policy := &gatetest.Recorder{}
		client := &http.Client{Transport: spillway.Must(httpgate.NewTransport(spillway.New(policy), nil, nil))}
		res, err := client.Get(server.URL)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		server.Close()
		require.Len(t, policy.Results(), 1)
		require.Equal(t, tt.want, policy.Results()[0].RetryAfter, "%d, Retry-After: %s", tt.status, tt.header)
	}
}
