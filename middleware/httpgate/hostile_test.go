package httpgate_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// An attack is a request that a stranger sends over HTTP/1.1, as it goes over the wire.
type attack struct {
	name string
	raw  string
	then ending
}

// An ending is how a stranger leaves the connection.
type ending int

const (
	waits   ending = iota // for the answer
	closes                // at once
	resets                // at once, with a RST
	halves                // closes its side and waits for the answer
	holds                 // reads nothing and leaves the connection open until the innocent have been served
	dallies               // reads nothing for a while
)

func req(line string, fields ...string) string {
	return line + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(append(fields, "\r\n"), "\r\n")
}

// attacks are on a service behind httpgate.Handler.
func attacks() []attack {
	const upload, chunked = "POST /upload", "Transfer-Encoding: chunked"
	grpc, connect := "Content-Type: application/grpc", "Content-Type: application/connect+proto"
	list := []attack{
		{"chunk of no size", req(upload, chunked) + "zz\r\nabc\r\n", waits},
		{"chunk without an end", req(upload, chunked) + "3\r\nabcdef\r\n", waits},
		{"negative chunk", req(upload, chunked) + "-1\r\nabc\r\n", waits},
		{"chunk of 2^64", req(upload, chunked) + "fffffffffffffffff\r\nabc\r\n", waits},
		{"chunk cut off", req(upload, chunked) + "ff\r\nabc", closes},
		{"chunk cut off by half", req(upload, chunked) + "ff\r\nabc", halves},
		{"chunk that stalls", req(upload, chunked) + "ff\r\nabc", holds},
		{"chunk extensions", req(upload, chunked) + "1;" + strings.Repeat("x", 20_000) + "\r\na\r\n", waits},
		{"bad trailer", req(upload, chunked, "Trailer: X-T") + "1\r\na\r\n0\r\nbad\r\n\r\n", waits},
		{"trailer of a framing field", req(upload, chunked, "Trailer: Content-Length") + "1\r\na\r\n0\r\n\r\n", waits},
		{"short body, close", req(upload, "Content-Length: 100") + "abc", closes},
		{"short body, half close", req(upload, "Content-Length: 100") + "abc", halves},
		{"short body, reset", req(upload, "Content-Length: 100") + "abc", resets},
		{"body that stalls", req(upload, "Content-Length: 100") + "abc", holds},
		{"body that never begins", req(upload, "Content-Length: 1"), holds},
		{"body that stalls under a timeout", req("POST /late/upload", "Content-Length: 100") + "abc", dallies},
		{"body too large for the service", req(upload, "Content-Length: 99999999") + "abc", halves},
		{"body too large, sent", req(upload, chunked) + "2000\r\n" + strings.Repeat("x", 0x2000) + "\r\n", waits},
		{"body too large for the handler", req("POST /limited", "Content-Length: 1000") + strings.Repeat("x", 1000), waits},
		{"body too large for the handler, stalls", req("POST /limited", "Content-Length: 1000") + strings.Repeat("x", 100), dallies},
		{"expects 100-continue, sends nothing", req(upload, "Content-Length: 10", "Expect: 100-continue"), closes},
		{"expects nonsense", req(upload, "Content-Length: 1", "Expect: nonsense") + "x", waits},
		{"reads nothing of much", req("GET /big"), holds},
		{"reads nothing for a while", req("GET /big"), dallies},
		{"leaves in the middle of the answer", req("GET /big"), resets},
		{"leaves while the handler works", req("POST /grpc/a", grpc, "Content-Length: 0"), resets},
		{"asks for a timeout too short, gRPC", req("POST /grpc/a", grpc, "Grpc-Timeout: 5m", "Content-Length: 0"), waits},
		{"asks for a timeout of nothing, gRPC", req("POST /grpc/a", grpc, "Grpc-Timeout: 1n", "Content-Length: 0"), waits},
		{"asks for a nonsense timeout, gRPC", req("POST /grpc/a", grpc, "Grpc-Timeout: -9999999999S", "Content-Length: 0"), waits},
		{"asks for a timeout too short, Connect", req("POST /grpc/a", connect, "Connect-Timeout-Ms: 5", "Content-Length: 0"), waits},
		{"CONNECT to a host", "CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n", waits},
		{"CONNECT to a path", req("CONNECT /page"), waits},
		{"preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", waits},
		{"upgrade to h2c", req("GET /hijack", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"), waits},
		{"upgrade of a page", req("GET /page", "Connection: Upgrade", "Upgrade: websocket"), waits},
		{"upgrade that takes a place", req("GET /hijack", "Connection: Upgrade", "Upgrade: websocket"), holds},
		{"event stream of a page", req("GET /page", "Accept: text/event-stream"), waits},
		{"event streams, all that there is room for", req("GET /stream", "Accept: text/event-stream"), holds},
		{"many methods", req("BREW /page"), waits},
		{"OPTIONS of everything", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", waits},
		{"TRACE", req("TRACE /page"), waits},
		{"target of another host", req("GET http://other/healthz"), waits},
		{"target with dots", req("GET /debug/pprof/../../upload"), waits},
		{"target with encoded dots", req("GET /%2e%2e/%2e%2e/upload"), waits},
		{"target with slashes", req("GET //page//"), waits},
		{"POST of an exempt path", req("POST /healthz", "Content-Length: 3") + "abc", waits},
		{"header too large", req("GET /page", "X: "+strings.Repeat("x", 1<<16)), waits},
		{"header of no name", req("GET /page", ": x"), waits},
		{"two lengths", req(upload, "Content-Length: 1", "Content-Length: 2") + "ab", waits},
		{"length and chunks", req(upload, "Content-Length: 1", chunked) + "0\r\n\r\n", waits},
		{"ranges", req("GET /big", "Range: bytes="+strings.Repeat("0-1,", 500)+"1-1"), waits},
		{"pipelined and gone", strings.Repeat(req("GET /big"), 20), closes},
		{"header that never ends", "GET /page HTTP/1.1\r\nHost: x\r\nX-", holds},
		{"bad chunk to a proxy", req("POST /proxy/upload", chunked) + "zz\r\nabc\r\n", waits},
		{"short body to a proxy", req("POST /proxy/upload", "Content-Length: 100") + "abc", halves},
		{"body too large for a proxy", req("POST /proxy/upload", chunked) + "2000\r\n" + strings.Repeat("x", 0x2000) + "\r\n", waits},
		{"body that stalls to a proxy", req("POST /proxy/upload", "Content-Length: 100") + "abc", holds},
		{"body that stalls to a proxy under a timeout", req("POST /late/proxy/upload", "Content-Length: 100") + "abc", dallies},
		{"invalid trailer to a proxy", req("POST /proxy/upload", chunked, "Trailer: a b") + "1\r\na\r\n0\r\n\r\n", waits},
		{"upgrade to nonsense through a proxy", req("GET /proxy/page", "Connection: Upgrade", "Upgrade: \xe9"), waits},
		{"leaves a proxy", req("GET /proxy/big"), resets},
		{"reads nothing of a proxy for a while", req("GET /proxy/big"), dallies},
		{"chunks that are not the last coding", req(upload, "Transfer-Encoding: chunked, identity") + "0\r\n\r\n", waits},
		{"chunks twice", req(upload, chunked, chunked) + "0\r\n\r\n", waits},
		{"chunks behind a tab", req(upload, "Transfer-Encoding:\x0bchunked") + "0\r\n\r\n", waits},
		{"chunks of HTTP/1.0", "POST /upload HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", waits},
		{"chunk broken off by a reset", req(upload, chunked) + "ff\r\nab", resets},
		{"a chunk for each byte, broken off", req(upload, chunked) + strings.Repeat("1\r\na\r\n", 1000) + "1\r\n", resets},
		{"trailers without end", req(upload, chunked) + "0\r\n" + strings.Repeat("X-T: y\r\n", 10_000), halves},
		{"two thousand fields", req("GET /page", strings.Repeat("A: b\r\n", 2000)+"A: b"), waits},
		{"folded field", req("GET /page", "X: a\r\n b"), waits},
		{"line that is too long", "GET /" + strings.Repeat("x", 1<<20) + " HTTP/1.1\r\nHost: x\r\n\r\n", waits},
		{"HTTP/0.9", "GET /page\r\n\r\n", waits},
		{"no host", "GET /page HTTP/1.1\r\n\r\n", waits},
		{"two hosts", "GET /page HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", waits},
		{"expects 100-continue twice, and sends at once", req("POST /proxy/upload", "Content-Length: 3", "Expect: 100-continue", "Expect: 100-continue") + "abc", waits},
		{"expects 100-continue of a proxy, resets", req("POST /proxy/upload", "Content-Length: 3", "Expect: 100-continue"), resets},
		{"fields of one hop", req("POST /proxy/upload", "Content-Length: 3", "Connection: Content-Length, X-Client, Host, Grpc-Timeout") + "abc", waits},
		{"encoding that is a lie", req(upload, "Content-Encoding: gzip", "Content-Length: 3") + "abc", waits},
		{"negative length", req(upload, "Content-Length: -1"), waits},
		{"length beyond all numbers", req(upload, "Content-Length: 99999999999999999999"), waits},
		{"pipelined, half of it too large", strings.Repeat(req("POST /limited", "Content-Length: 100")+strings.Repeat("x", 100)+req("GET /page"), 10), resets},
		{"a timeout of nothing for a page, gRPC", req("POST /grpc/a", grpc, "Grpc-Timeout: 0n", "Content-Length: 0"), waits},
		{"a timeout of nothing, Connect", req("POST /grpc/a", connect, "Connect-Timeout-Ms: 0", "Content-Length: 0"), waits},
		{"timeouts by the dozen", req("POST /grpc/a", grpc, strings.Repeat("Grpc-Timeout: 1n\r\n", 12)+"Grpc-Timeout: 9H", "Content-Length: 0"), waits},
		{"upgrade left half way", req("GET /hijack", "Connection: Upgrade", "Upgrade: websocket"), resets},
		{"upgrade through a proxy, left half way", req("GET /proxy/hijack", "Connection: Upgrade", "Upgrade: websocket"), resets},
		{"upgrade with a body that stalls", req("POST /upload", "Connection: Upgrade", "Upgrade: websocket", "Content-Length: 9") + "abc", dallies},
		{"upgrade through a proxy", req("GET /proxy/page", "Connection: Upgrade", "Upgrade: websocket"), waits},
	}
	for i := range 5 { // keys and patterns of its choosing
		list = append(list, attack{fmt.Sprint("a name of its own ", i), req(fmt.Sprintf("GET /%d%x", i, i*7919), fmt.Sprint("X-Client: ", i)), waits})
	}
	return list
}

// A service is what the strangers attack: a gate in front of handlers, one of which calls another service through a gate.
type service struct {
	url, addr   string
	m           *httpgate.Middleware
	front, back *tripwire
	client      *http.Client
}

const (
	lateness = 3 * time.Second        // of the TimeoutHandler: enough for the innocent on a busy machine
	dally    = 300 * time.Millisecond // how long a stranger does nothing
)

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{front: &tripwire{}, back: &tripwire{}}
	backend := httptest.NewServer(s.handlers(nil))
	backend.Config.ErrorLog = discardLog
	t.Cleanup(backend.Close)
	target, err := url.Parse(backend.URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = spillway.Must(httpgate.NewTransport(spillway.New(s.back), nil, nil))
	proxy.ErrorHandler = httpgate.ProxyError(nil)
	proxy.ErrorLog = discardLog

	mux := s.handlers(http.StripPrefix("/proxy", proxy))
	key, route := httpgate.HeaderKey("X-Client"), httpgate.PatternKey(mux)
	s.m, err = httpgate.New(spillway.New(s.front), &httpgate.Options{
		Request: func(r *http.Request) spillway.Request {
			return spillway.Request{Key: key(r), Route: route(r), Timeout: httpgate.ClientTimeout(r)}
		},
		MaxLongLived: 100,
	})
	require.NoError(t, err)
	gated := s.m.Handler(mux)
	late := http.TimeoutHandler(http.StripPrefix("/late", gated), lateness, "late")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/late/") {
			late.ServeHTTP(w, r)
			return
		}
		http.MaxBytesHandler(gated, 4096).ServeHTTP(w, r)
	}))
	srv.Config.ErrorLog = discardLog
	s.url, s.addr, s.client = srv.URL, srv.Listener.Addr().String(), srv.Client()
	t.Cleanup(srv.Close)
	return s
}

// handlers are of a service that takes every error for its own.
func (s *service) handlers(proxy http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") })
	mux.HandleFunc("GET /big", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 16<<20)) })
	mux.HandleFunc("POST /upload", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprintf(w, "%d bytes", len(body))
	})
	mux.HandleFunc("POST /limited", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 10)); err != nil {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	})
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, r *http.Request) {
		stream(w)
		<-r.Context().Done()
	})
	mux.HandleFunc("GET /hijack", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		go func() {
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}()
	})
	mux.HandleFunc("POST /grpc/{method}", timed)
	if proxy != nil {
		mux.Handle("/proxy/", proxy)
	}
	return mux
}

// timed is a handler that takes 20 ms, or as long as its client is willing to wait.
func timed(w http.ResponseWriter, r *http.Request) {
	timeout := httpgate.TimeoutHeader("Grpc-Timeout", 0)(r)
	if timeout == 0 {
		timeout = httpgate.TimeoutHeader("Connect-Timeout-Ms", time.Millisecond)(r)
	}
	ctx := r.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	select {
	case <-time.After(20 * time.Millisecond):
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	case <-ctx.Done():
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "4")
		if strings.Contains(r.Header.Get("Content-Type"), "connect") {
			w.WriteHeader(http.StatusGatewayTimeout)
		}
	}
}

// innocent sends one request of each kind that somebody else depends on, and returns the answers.
func (s *service) innocent(t *testing.T) (answers []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, c := range []struct{ method, path, body, header, value string }{
		{"GET", "/page", "", "", ""}, {"POST", "/upload", "body", "", ""}, {"GET", "/proxy/page", "", "", ""},
		{"POST", "/proxy/upload", "body", "", ""}, {"GET", "/stream", "", "Accept", "text/event-stream"},
		{"POST", "/grpc/a", "", "Grpc-Timeout", "10S"}, {"POST", "/late/upload", "body", "", ""}, {"GET", "/healthz", "", "", ""},
	} {
		r, err := http.NewRequestWithContext(ctx, c.method, s.url+c.path, strings.NewReader(c.body))
		require.NoError(t, err)
		r.Header.Set("X-Client", "innocent")
		if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		if c.header == "Grpc-Timeout" {
			r.Header.Set("Content-Type", "application/grpc")
		}
		res, err := s.client.Do(r)
		require.NoError(t, err)
		var body []byte
		if c.path == "/stream" {
			body, _ = bufio.NewReader(res.Body).ReadBytes('\n')
		} else {
			body, err = io.ReadAll(res.Body)
			require.NoError(t, err)
		}
		res.Body.Close()
		answers = append(answers, fmt.Sprint(c.path, " ", res.StatusCode, " ", string(body), " ", res.Trailer))
	}
	return answers
}

// send carries out a and returns a function that lets go of the connection.
func (s *service) send(t *testing.T, a attack) (end func()) {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, _ = io.WriteString(conn, a.raw)
	tcp := conn.(*net.TCPConn)
	switch a.then {
	case halves:
		_ = tcp.CloseWrite()
		fallthrough
	case waits:
		_, _ = http.ReadResponse(bufio.NewReader(conn), nil)
	case resets:
		_, _ = conn.Read(make([]byte, min(len(a.raw)%2, 1))) // some wait for the first byte
		_ = tcp.SetLinger(0)
	case dallies:
		time.Sleep(dally) // in real time: the socket is real
		if strings.Contains(a.raw, "/late/") {
			time.Sleep(lateness) // as above
		}
	case holds:
		return func() { conn.Close() }
	case closes:
	}
	conn.Close()
	return func() {}
}

// Hostile requests leave the answers of others as they are, however many come. The service takes every error for its own,
// and its policies refuse everybody after three failures.
func TestStrangersDoNotChangeAnInnocentAnswer(t *testing.T) {
	require.GreaterOrEqual(t, len(attacks()), 40)
	s := newService(t)
	for range 12 { // until the latencies are known
		s.innocent(t)
	}
	before := s.innocent(t)
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) {
			var all sync.WaitGroup
			ends := make(chan func(), 12)
			for range cap(ends) {
				all.Go(func() { ends <- s.send(t, a) })
			}
			all.Wait()
			close(ends)
			after := s.innocent(t)
			for end := range ends {
				end()
			}
			inFlight, against := s.front.seen()
			s.front.forget()
			require.Empty(t, against, "booked by the gate of the service")
			_, against = s.back.seen()
			s.back.forget()
			require.Empty(t, against, "booked by the gate of the proxy")
			require.Equal(t, before, after)
			require.Eventually(t, func() bool {
				inFlight, _ = s.front.seen()
				back, _ := s.back.seen()
				return inFlight == 0 && back == 0 && s.m.Stats().LongLived == 0
			}, 20*time.Second, time.Millisecond, "%d in flight", inFlight)
		})
	}
}
