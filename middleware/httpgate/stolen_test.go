package httpgate_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// A broken is an upload whose client leaves.
type broken struct{ read bool }

func (b *broken) Read(p []byte) (int, error) {
	if b.read {
		return 0, errors.New("the client left")
	}
	b.read = true
	return copy(p, "hello"), nil
}

// In HTTP/1, net/http gives a connection back just before it delivers the answer. If an upload breaks on it in that moment, the
// request before gets the error. A Retry sends that request again.
func TestABrokenUploadFailsTheRequestBefore(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer server.Close()
	upstream, err := url.Parse(server.URL)
	require.NoError(t, err)
	for _, again := range []bool{false, true} {
		transport := new(http.Transport)
		defer transport.CloseIdleConnections()
		proxy := httputil.NewSingleHostReverseProxy(upstream)
		proxy.ErrorHandler = httpgate.ProxyError(nil)
		proxy.Transport = transport
		if again {
			gate := spillway.New()
			proxy.Transport = spillway.Must(httpgate.NewTransport(gate, transport, &httpgate.TransportOptions{
				Retry: &httpgate.Retry{Attempts: 2, Backoff: time.Millisecond},
			}))
		}
		guard := spillway.New()
		front := spillway.Must(httpgate.New(guard, nil))
		var (
			once     atomic.Bool
			answered = make(chan struct{})
		)
		moment := &httptrace.ClientTrace{PutIdleConn: func(error) { // the answer waits for it
			if !once.CompareAndSwap(false, true) {
				return
			}
			r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, server.URL, new(broken))
			if err != nil {
				return
			}
			r.ContentLength = 1000
			if res, err := transport.RoundTrip(r); err == nil {
				res.Body.Close()
			}
			select {
			case <-answered:
			case <-time.After(10 * time.Second):
			}
		}}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		front.Handler(proxy).ServeHTTP(w, r.WithContext(httptrace.WithClientTrace(r.Context(), moment)))
		close(answered)
		if again {
			require.Equal(t, http.StatusOK, w.Code)
			require.Equal(t, int64(1), guard.Stats().Succeeded)
			continue
		}
		require.Equal(t, http.StatusBadGateway, w.Code, "if net/http has no such fault any more, the remedy in docs/frameworks.md can go")
		require.Equal(t, int64(1), guard.Stats().Failed)
	}
}
