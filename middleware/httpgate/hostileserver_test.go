package httpgate_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// serverScripts are what a hostile server answers, as it goes over the wire. After that it closes the connection.
func serverScripts() map[string]func(conn net.Conn) {
	says := func(text string) func(net.Conn) { return func(conn net.Conn) { _, _ = io.WriteString(conn, text) } }
	const ok, chunked = "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
	return map[string]func(net.Conn){
		"nothing":                       says(""),
		"no HTTP":                       says("hello\r\n\r\n"),
		"HTTP/0.9":                      says("<html>"),
		"a version of the future":       says("HTTP/9.9 200 OK\r\n\r\n"),
		"a status of no number":         says("HTTP/1.1 xxx OK\r\n\r\n"),
		"a status of 999":               says("HTTP/1.1 999 OK\r\nContent-Length: 0\r\n\r\n"),
		"a status of 0":                 says("HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n"),
		"a switch nobody asked for":     says("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\ngarbage"),
		"hints without end":             says(strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 1000)),
		"continues without end":         says(strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 1000)),
		"a header too large":            says(ok + "X: " + strings.Repeat("x", 2<<20) + "\r\n\r\n"),
		"a header that never ends":      says(ok + "X: "),
		"a field of no name":            says(ok + ": x\r\n\r\n"),
		"two lengths":                   says(ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
		"a length and chunks":           says(chunked + "Content-Length: 1\r\n\r\n0\r\n\r\n"),
		"a length that is a lie":        says(ok + "Content-Length: 100\r\n\r\nabc"),
		"a negative length":             says(ok + "Content-Length: -1\r\n\r\n"),
		"a chunk of no size":            says(chunked + "\r\nzz\r\n"),
		"a chunk broken off":            says(chunked + "\r\nff\r\nabc"),
		"trailers without end":          says(chunked + "\r\n0\r\n" + strings.Repeat("X: y\r\n", 100_000)),
		"trailers that are not allowed": says(chunked + "Trailer: Content-Length\r\n\r\n0\r\nContent-Length: 3\r\n\r\n"),
		"an encoding that is a lie":     says(ok + "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"),
		"two answers":                   says(ok + "Content-Length: 0\r\n\r\n" + ok + "Content-Length: 4\r\n\r\nevil"),
		"a wish for all time":           says("HTTP/1.1 503 No\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n"),
		"a wish for the past":           says("HTTP/1.1 503 No\r\nRetry-After: Mon, 01 Jan 0001 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n"),
		"a wish for year 9999":          says("HTTP/1.1 429 No\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\nContent-Length: 0\r\n\r\n"),
		"a quota of nonsense":           says("HTTP/1.1 429 No\r\nRateLimit: \"a\";r=-1;t=99999999999999999999, ;;;\r\nContent-Length: 0\r\n\r\n"),
		"a redirect to itself":          says("HTTP/1.1 302 Found\r\nLocation: /page\r\nContent-Length: 0\r\n\r\n"),
		"resets after the header": func(conn net.Conn) {
			_, _ = io.WriteString(conn, ok+"Content-Length: 100\r\n\r\nabc")
			_ = conn.(*net.TCPConn).SetLinger(0)
		},
		"resets at once":         func(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0) },
		"silence":                func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) },
		"a header, then silence": func(conn net.Conn) { says(ok + "Content-Length: 9\r\n\r\n")(conn); _, _ = io.Copy(io.Discard, conn) },
		"an octet now and then": func(conn net.Conn) {
			says(ok + "Content-Length: 9999\r\n\r\n")(conn)
			for range 200 {
				says("x")(conn)
				time.Sleep(5 * time.Millisecond) // the pace is the attack
			}
		},
	}
}

// hostileServer runs script on each connection that has sent the header of a request, and returns its URL.
func hostileServer(t *testing.T, script func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(5 * time.Second)) // so that nothing can hang for ever
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					script(conn)
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return "http://" + l.Addr().String()
}

// A server that breaks every rule harms no call to another server through the same Transport, and leaves nothing behind. At most its
// own breaker opens.
func TestHostileServersHarmNoOther(t *testing.T) {
	require.GreaterOrEqual(t, len(serverScripts()), 30)
	for name, script := range serverScripts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good := httptest.NewServer((&service{}).handlers(nil))
			t.Cleanup(good.Close)
			base := &http.Transport{}
			defer base.CloseIdleConnections() // before the servers wait for them
			seen, brk := &gatetest.Recorder{}, spillway.Must(breaker.NewKeyed(nil))
			rt, err := httpgate.NewTransport(spillway.New(seen, brk), base, nil)
			require.NoError(t, err)
			client := &http.Client{Transport: rt}
			innocent := func() []string {
				var answers []string
				for _, c := range [][2]string{{"GET", "/page"}, {"POST", "/upload"}} {
					answers = append(answers, exchangeOnce(t, client, c[0], good.URL+c[1], 20*time.Second))
				}
				return answers
			}
			before := innocent()
			require.Equal(t, []string{"200 page <nil>", "200 4 bytes <nil>"}, before)
			bad := hostileServer(t, script)
			var all sync.WaitGroup
			for i := range 30 {
				all.Go(func() { _ = exchangeOnce(t, client, []string{"GET", "POST"}[i%2], bad+"/page", 200*time.Millisecond) })
			}
			all.Wait()
			require.Equal(t, before, innocent())
			require.EqualValues(t, 2, brk.Stats().Keys)
			require.Eventually(t, func() bool { return seen.InFlight() == 0 }, 10*time.Second, time.Millisecond, "nothing is left behind")
			for _, r := range seen.Results() {
				require.LessOrEqual(t, r.RetryAfter, 24*time.Hour)
			}
		})
	}
}

// exchangeOnce makes one request and returns what came of it.
func exchangeOnce(t *testing.T, client *http.Client, method, url string, within time.Duration) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader("body")
	}
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err.Error()
	}
	res, err := client.Do(r)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	return fmt.Sprint(res.StatusCode, " ", string(got), " ", err)
}
