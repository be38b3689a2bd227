package httpgate_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
)

// The trailers of a request reach the handler, also those that its header did not announce.
func TestTrailersOfARequestReachTheHandler(t *testing.T) {
	h := middleware(t, nil).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		assert.NoError(t, err)
		_, _ = io.WriteString(w, r.Trailer.Get("Sum"))
	}))
	for url, client := range bothProtocols(t, h) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, struct{ io.Reader }{strings.NewReader("body")})
		require.NoError(t, err)
		r.Trailer = http.Header{"Sum": {"42"}}
		res, err := client.Do(r)
		require.NoError(t, err)
		got, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		res.Body.Close()
		require.Equal(t, "42", string(got))
	}

	srv := httptest.NewServer(h)
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nSum: 42\r\n\r\n")
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	got, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, "42", string(got), "not announced")
}

// HTTP/2 and HTTP/3 have no 101: the header behind it is the final one.
func TestSwitchingProtocolsIsFinalOverHTTP1Alone(t *testing.T) {
	for _, major := range []int{2, 3} {
		p := &gatetest.Recorder{}
		m := middleware(t, nil, p)
		r := get("Upgrade", "websocket")
		r.ProtoMajor = major
		m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusSwitchingProtocols)
			assert.Zero(t, m.Stats().LongLived)
			w.WriteHeader(http.StatusInternalServerError)
		})).ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, []spillway.Outcome{spillway.Failure}, p.Outcomes())
	}
}
