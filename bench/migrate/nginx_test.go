package migrate

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

func limitReqAfter(next http.Handler) (http.Handler, error) {
	perClient, err := limiter.NewKeyed(limiter.Bucket{Rate: limiter.Per(10, time.Second), Burst: 21}, nil)
	if err != nil {
		return nil, err
	}
	ip, err := httpgate.NewClientIP(nil)
	if err != nil {
		return nil, err
	}
	return httpgate.Handler(spillway.New(perClient), &httpgate.Options{Request: httpgate.KeyBy(ip.Key)})(next), nil
}

func TestNginxLimitReq(t *testing.T) {
	h, err := limitReqAfter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	require.NoError(t, err)
	ask := func(from string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = from + ":1234"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	served := 0
	for range 100 {
		if ask("192.0.2.1").Code == http.StatusOK {
			served++
		}
	}
	require.GreaterOrEqual(t, served, 21)
	require.Less(t, served, 100, "100 requests take far less than 8 s")
	require.Equal(t, http.StatusOK, ask("192.0.2.2").Code)
}
