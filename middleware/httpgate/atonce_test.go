package httpgate_test

import (
	"bufio"
	"context"
	"errors"
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
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// atOnce is how long a refusal may take whose body never comes: 100 ms of patience, and as much for a busy machine.
const atOnce = 200 * time.Millisecond

// A refusal is at once, also with a body that never comes.
func TestRefusedAtOnceWhateverBecomesOfTheBody(t *testing.T) {
	for _, c := range []string{"Content-Length: 1\r\n\r\n", "Content-Length: 4\r\n\r\nbo", "Content-Length: 262144\r\n\r\n", "Content-Length: 262145\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n"} {
		for name, refuse := range map[string]http.Handler{
			"gate":    httpgate.Handler(shut(), nil)(unreachable(t)),
			"timeout": http.TimeoutHandler(httpgate.Handler(shut(), nil)(unreachable(t)), time.Hour, ""),
			"own": httpgate.Handler(shut(), &httpgate.Options{Refuse: func(w http.ResponseWriter, _ *http.Request, _ *spillway.Rejection) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}})(unreachable(t)),
		} {
			best := time.Hour
			for range 20 { // until the machine was not too busy for once
				res, took := timedRoundTripRaw(t, refuse, "POST / HTTP/1.1\r\nHost: x\r\n"+c)
				require.Equal(t, http.StatusServiceUnavailable, res.StatusCode, "%s: %q", name, c)
				require.True(t, res.Close, "%s: %q", name, c)
				if best = min(best, took); best <= atOnce {
					break
				}
			}
			require.LessOrEqual(t, best, atOnce, "%s: %q", name, c)
		}
	}
}

// A body that comes keeps the connection, and whatever follows on it is answered.
func TestRefusedConnectionStaysInUse(t *testing.T) {
	h := httpgate.Handler(shut(), nil)(answer(http.StatusNoContent))
	srv := httptest.NewServer(h)
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	in := bufio.NewReader(conn)
	read := func(want int) {
		res, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, res.Body)
		require.NoError(t, err)
		require.Equal(t, want, res.StatusCode)
		require.False(t, res.Close)
	}
	post := "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789"
	exempt := "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
	_, err = io.WriteString(conn, post+exempt+post)
	require.NoError(t, err)
	read(http.StatusServiceUnavailable)
	read(http.StatusNoContent)
	read(http.StatusServiceUnavailable)
	time.Sleep(150 * time.Millisecond) // real time: the deadline for the body has passed, and must not be that of the connection
	_, err = io.WriteString(conn, exempt+post)
	require.NoError(t, err)
	read(http.StatusNoContent)
	read(http.StatusServiceUnavailable)
}

// Clients that are alive are told to come back when a service goes down.
func TestRefusedAtOnceAtShutdown(t *testing.T) {
	base, cancel := context.WithCancel(t.Context())
	srv := httptest.NewUnstartedServer(httpgate.Handler(spillway.New(), nil)(answer(http.StatusOK)))
	srv.Config.BaseContext = func(net.Listener) context.Context { return base }
	srv.Start()
	defer srv.Close()
	get := func() *http.Response {
		res, err := srv.Client().Get(srv.URL)
		require.NoError(t, err)
		defer res.Body.Close()
		return res
	}
	require.Equal(t, http.StatusOK, get().StatusCode)
	cancel()
	res := get()
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.NotEmpty(t, res.Header.Get("Retry-After"))
}

// A request that is too large is answered at once, as without the gate.
func TestRefusedAtOnceByMaxBytesReader(t *testing.T) {
	for name, c := range map[string]struct {
		body  string
		close bool
	}{
		"the rest never comes": {"0123456789ab", true},
		"all there":            {"0123456789" + strings.Repeat("x", 90), true},
		"within the limit":     {"0123", false},
	} {
		t.Run(name, func(t *testing.T) {
			h := httpgate.Handler(spillway.New(), nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.ReadFull(http.MaxBytesReader(w, r.Body, 10), make([]byte, 100))
				var tooLarge *http.MaxBytesError
				if errors.As(err, &tooLarge) {
					w.WriteHeader(http.StatusRequestEntityTooLarge)
				}
			}))
			length := "Content-Length: 100\r\n\r\n"
			if !c.close {
				length = "Content-Length: 4\r\n\r\n"
			}
			res := roundTripRaw(t, h, "POST / HTTP/1.1\r\nHost: x\r\n"+length+c.body)
			require.Equal(t, c.close, res.StatusCode == http.StatusRequestEntityTooLarge)
			require.Equal(t, c.close, res.Close)
		})
	}
}

// A gRPC client repeats UNAVAILABLE at once, which it makes of a 503.
func TestRefusedGRPCIsNotRepeatedAtOnce(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/svc/Method", nil)
	r.Header.Set("Content-Type", "application/grpc+proto")
	w := httptest.NewRecorder()
	httpgate.WriteRefusal(w, r, &spillway.Rejection{RetryAfter: 20 * time.Second})
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "application/grpc+proto", w.Header().Get("Content-Type"))
	require.Equal(t, "8", w.Header().Get("Grpc-Status"))
	require.Regexp(t, "^2[0-9]000$", w.Header().Get("Grpc-Retry-Pushback-Ms"))
	require.Zero(t, w.Body.Len())
}

// A gate outside of h2c.NewHandler would lose sight of all requests on a connection after the first. It says so instead.
func TestBookedIsEveryRequestOfAConnectionThatOffersH2C(t *testing.T) {
	h := httpgate.Handler(spillway.New(), nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _, err := http.NewResponseController(w).Hijack()
		assert.ErrorContains(t, err, "put the gate inside h2c.NewHandler")
		w.WriteHeader(http.StatusInternalServerError) // as h2c.NewHandler does
	}))
	res := roundTripRaw(t, h, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
	require.Equal(t, http.StatusInternalServerError, res.StatusCode)
	res = roundTripRaw(t, h, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	require.Equal(t, http.StatusHTTPVersionNotSupported, res.StatusCode)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Contains(t, string(body), "put the gate inside h2c.NewHandler")
}
