package httpgate_test

import (
	"bufio"
	"cmp"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// nowhere is a ResponseWriter like that of net/http on HTTP/1.1, whose methods cost nothing.
type nowhere struct{ header http.Header }

func (w *nowhere) Header() http.Header               { return w.header }
func (w *nowhere) Write(b []byte) (int, error)       { return len(b), nil }
func (w *nowhere) WriteString(s string) (int, error) { return len(s), nil }
func (w *nowhere) WriteHeader(int)                   {}
func (w *nowhere) Flush()                            {}
func (w *nowhere) FlushError() error                 { return nil }
func (w *nowhere) ReadFrom(io.Reader) (int64, error) { return 0, nil }
func (w *nowhere) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}
func (w *nowhere) CloseNotify() <-chan bool       { return nil }
func fine(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") }
func overloaded(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "overloaded", http.StatusServiceUnavailable)
}
func inMemory(h http.Handler, w http.ResponseWriter, r *http.Request) func() {
	return func() { h.ServeHTTP(w, r) }
}

func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	w, r := &nowhere{http.Header{}}, httptest.NewRequest(http.MethodGet, "/", nil)
	bare := testing.AllocsPerRun(1000, inMemory(http.HandlerFunc(fine), w, r))
	gate := spillway.New(admitter{}, admitter{}, admitter{}, admitter{})
	closed := shut()
	refusing := testing.AllocsPerRun(1000, func() { _, _ = closed.Enter(r.Context(), spillway.Request{}) })
	for name, c := range map[string]struct {
		h    http.Handler
		over float64
	}{
		"admitted": {httpgate.Handler(gate, nil)(http.HandlerFunc(fine)), 1},
		"admitted with a key": {httpgate.Handler(gate, &httpgate.Options{
			Request: func(r *http.Request) spillway.Request { return spillway.Request{Key: r.Host} },
		})(http.HandlerFunc(fine)), 1},
		"exempt": {httpgate.Handler(gate, &httpgate.Options{
			Exempt: func(*http.Request) bool { return true },
		})(http.HandlerFunc(fine)), 0},
		"long-lived": {httpgate.Handler(gate, &httpgate.Options{
			LongLived: func(*http.Request) bool { return true },
		})(http.HandlerFunc(fine)), 1},
		"refused": {httpgate.Handler(closed, nil)(http.HandlerFunc(fine)), refusing},
	} {
		require.LessOrEqual(t, testing.AllocsPerRun(1000, inMemory(c.h, w, r))-bare, c.over, name)
	}
}

// BenchmarkInMemory is what the gate adds, without a server.
func BenchmarkInMemory(b *testing.B) {
	w, r := &nowhere{http.Header{}}, httptest.NewRequest(http.MethodGet, "/", nil)
	for _, c := range handlers() {
		b.Run(c.name+"/serial", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.h.ServeHTTP(w, r)
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				w, r := &nowhere{http.Header{}}, httptest.NewRequest(http.MethodGet, "/", nil)
				for pb.Next() {
					c.h.ServeHTTP(w, r)
				}
			})
		})
	}
}

// handlers are, side by side, what is to be compared: bare to admitted, and bare503 to refused.
func handlers() []namedHandler {
	open := httpgate.Handler(spillway.New(admitter{}), nil)
	return []namedHandler{
		{"bare", http.HandlerFunc(fine)},
		{"admitted", open(http.HandlerFunc(fine))},
		{"bare503", http.HandlerFunc(overloaded)},
		{"empty503", answer(http.StatusServiceUnavailable)},
		{"refused", httpgate.Handler(shut(), nil)(http.HandlerFunc(fine))},
	}
}

type namedHandler struct {
	name string
	h    http.Handler
}

// BenchmarkServer is one request through a whole HTTP/1.1 server on one connection that costs nothing itself, so that the
// time is the server's alone.
func BenchmarkServer(b *testing.B) {
	for _, c := range handlers() {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			conn := &endless{n: b.N, closed: make(chan struct{})}
			srv := &http.Server{Handler: c.h}
			b.ResetTimer()
			_ = srv.Serve(&oneConn{conn: conn})
			<-conn.closed
		})
	}
}

const rawRequest = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"

// endless is a connection whose client sends the same request n times and throws the answers away.
type endless struct {
	net.Conn
	n       int
	request string // if it is not rawRequest
	left    string
	closed  chan struct{}
}

func (c *endless) Read(p []byte) (int, error) {
	if c.left == "" {
		if c.n == 0 {
			return 0, io.EOF
		}
		c.n--
		c.left = cmp.Or(c.request, rawRequest)
	}
	n := copy(p, c.left)
	c.left = c.left[n:]
	return n, nil
}
func (c *endless) Write(p []byte) (int, error)      { return len(p), nil }
func (c *endless) Close() error                     { close(c.closed); return nil }
func (c *endless) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *endless) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *endless) SetDeadline(time.Time) error      { return nil }
func (c *endless) SetReadDeadline(time.Time) error  { return nil }
func (c *endless) SetWriteDeadline(time.Time) error { return nil }

// oneConn is a listener that accepts one connection.
type oneConn struct{ conn net.Conn }

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	return nil, io.EOF
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }
