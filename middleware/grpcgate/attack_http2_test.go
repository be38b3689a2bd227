package grpcgate_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// A site is a service over HTTP/2 in clear text behind httpgate, which calls another one through httpgate.
type site struct {
	address     string
	m           *httpgate.Middleware
	front, back *gatetest.Recorder
	brk         [2]*breaker.Breaker
	client      *http.Client
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{front: &gatetest.Recorder{}, back: &gatetest.Recorder{}}
	for i := range s.brk {
		s.brk[i] = spillway.Must(breaker.New(nil))
	}
	target, err := url.Parse("http://" + serveHTTP2(t, s.handlers(nil)))
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	base := &http.Transport{Protocols: clearText()}
	t.Cleanup(base.CloseIdleConnections)
	proxy.Transport = spillway.Must(httpgate.NewTransport(spillway.New(s.back, s.brk[1]), base, nil))
	proxy.ErrorHandler, proxy.ErrorLog = httpgate.ProxyError(nil), discardLog()
	s.m, err = httpgate.New(spillway.New(s.front, s.brk[0]), nil)
	require.NoError(t, err)
	s.address = serveHTTP2(t, http.MaxBytesHandler(s.m.Handler(s.handlers(http.StripPrefix("/proxy", proxy))), 1<<20))
	transport := &http.Transport{Protocols: clearText()}
	t.Cleanup(transport.CloseIdleConnections)
	s.client = &http.Client{Transport: transport}
	return s
}

func clearText() *http.Protocols {
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	return p
}

func serveHTTP2(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.Protocols, srv.Config.ErrorLog = clearText(), discardLog()
	srv.Start()
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.Listener.Addr().String()
}

// handlers are of a service that takes every error for its own.
func (s *site) handlers(proxy http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") })
	mux.HandleFunc("GET /big", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 4<<20)) })
	mux.HandleFunc("GET /hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("GET /hints", func(w http.ResponseWriter, _ *http.Request) {
		for range 20 {
			w.WriteHeader(http.StatusEarlyHints)
			time.Sleep(time.Millisecond) // work
		}
		_, _ = io.WriteString(w, "hinted")
	})
	mux.HandleFunc("POST /upload", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprintf(w, "%d bytes", len(body))
	})
	if proxy != nil {
		mux.Handle("/proxy/", proxy)
	}
	return mux
}

// innocent returns what a well-behaved client gets.
func (s *site) innocent(t *testing.T) (answers []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/page", ""}, {"POST", "/upload", "body"}, {"GET", "/hints", ""}, {"GET", "/proxy/page", ""}, {"POST", "/proxy/upload", "body"},
	} {
		r, err := http.NewRequestWithContext(ctx, c.method, "http://"+s.address+c.path, strings.NewReader(c.body))
		require.NoError(t, err)
		res, err := s.client.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		res.Body.Close()
		answers = append(answers, fmt.Sprint(c.path, " ", res.StatusCode, " ", string(body)))
	}
	return answers
}

// open opens a stream for a path with further header fields, in pairs, and ends it or not.
func (c *rawConn) open(end bool, method, path string, fields ...string) uint32 {
	c.id = max(c.id+2, 1)
	if c.id%2 == 0 {
		c.id--
	}
	_ = c.WriteHeaders(http2.HeadersFrameParam{
		StreamID: c.id, EndStream: end, EndHeaders: true,
		BlockFragment: c.encode(append([]string{":method", method, ":scheme", "http", ":path", path, ":authority", "x"}, fields...)...),
	})
	return c.id
}

// http2Attacks are what a client does on a connection of its own, again and again.
func http2Attacks() map[string]func(c *rawConn) {
	attacks := map[string]func(c *rawConn){
		"header blocks without end": func(c *rawConn) {
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.encode(":method", "GET")})
			for range 500 {
				_ = c.WriteContinuation(1, false, c.encode("x", strings.Repeat("y", 1000)))
			}
		},
		"empty continuations": func(c *rawConn) {
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.encode(":method", "GET")})
			for range 500 {
				_ = c.WriteContinuation(1, false, nil)
			}
		},
		"rapid resets": func(c *rawConn) {
			for range 200 {
				_ = c.WriteRSTStream(c.open(true, "GET", "/hang"), http2.ErrCodeCancel)
			}
		},
		"the server made to reset": func(c *rawConn) {
			for range 200 {
				_ = c.WriteWindowUpdate(c.open(true, "GET", "/hang"), 0)
			}
		},
		"windows that stay shut": func(c *rawConn) {
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			for range 20 {
				c.open(true, "GET", "/big")
			}
		},
		"windows of one octet": func(c *rawConn) {
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			id := c.open(true, "GET", "/big")
			for range 100 {
				_ = c.WriteWindowUpdate(id, 1)
			}
		},
		"a window that shrinks below zero": func(c *rawConn) {
			c.open(true, "GET", "/big")
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		},
		"no octets of data": func(c *rawConn) {
			id := c.open(false, "POST", "/upload")
			for range 500 {
				_ = c.WriteData(id, false, nil)
			}
		},
		"data padded to nothing": func(c *rawConn) {
			id := c.open(false, "POST", "/upload")
			for range 200 {
				_ = c.WriteDataPadded(id, false, nil, make([]byte, 255))
			}
		},
		"pings and settings": func(c *rawConn) {
			c.open(true, "GET", "/hang")
			for range 500 {
				_ = c.WritePing(false, [8]byte{})
				_ = c.WriteSettings()
			}
		},
		"priorities of themselves": func(c *rawConn) {
			id := c.open(true, "GET", "/hang")
			for range 200 {
				_ = c.WritePriority(id, http2.PriorityParam{StreamDep: id, Exclusive: true})
			}
		},
		"a push by the client": func(c *rawConn) {
			c.open(true, "GET", "/hang")
			_ = c.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: c.encode(":method", "GET"), EndHeaders: true})
		},
		"GOAWAY, then more": func(c *rawConn) {
			_ = c.WriteGoAway(0, http2.ErrCodeNo, nil)
			c.open(true, "GET", "/big")
		},
		"more streams than agreed": func(c *rawConn) {
			for range 400 {
				c.open(true, "GET", "/hang")
			}
		},
		"tunnels that are not allowed": func(c *rawConn) {
			c.open(false, "CONNECT", "/page", ":protocol", "websocket")
			c.request(":method", "CONNECT", ":authority", "x:1")
		},
		"a table of headers that swells": func(c *rawConn) {
			c.enc.SetMaxDynamicTableSizeLimit(4096)
			for range 50 {
				var fields []string
				for range 200 {
					fields = append(fields, "x", strings.Repeat("y", 3000))
				}
				c.open(true, "GET", "/page", fields...)
			}
		},
		"data after the end":    func(c *rawConn) { id := c.open(true, "GET", "/hang"); _ = c.WriteData(id, true, []byte("x")) },
		"trailers, then data":   func(c *rawConn) { id := trailers(c, "x", "y"); _ = c.WriteData(id, true, []byte("x")) },
		"trailers of one hop":   func(c *rawConn) { trailers(c, "connection", "close") },
		"trailers of framing":   func(c *rawConn) { trailers(c, "content-length", "1") },
		"trailers with a colon": func(c *rawConn) { trailers(c, ":status", "200") },
		"trailers in capitals":  func(c *rawConn) { trailers(c, "X-Upper", "y") },
		"trailers that are not the last": func(c *rawConn) {
			id := c.open(false, "POST", "/upload")
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.encode("x", "y"), EndHeaders: true})
		},
	}
	for name, fields := range map[string][]string{
		"fields of one hop": {"connection", "close"}, "fields in capitals": {"X-Upper", "y"}, "a TE that is not trailers": {"te", "gzip"},
		"a transfer encoding": {"transfer-encoding", "chunked"}, "two lengths": {"content-length", "1", "content-length", "2"},
		"a length of no number": {"content-length", "x"}, "an Expect": {"expect", "100-continue"}, "a range of ranges": {"range", "bytes=" + strings.Repeat("0-1,", 1000)},
		"many cookies": {"cookie", strings.Repeat("a=b; ", 5000)},
	} {
		attacks[name] = func(c *rawConn) {
			c.open(true, "GET", "/page", fields...)
			c.open(true, "GET", "/proxy/page", fields...)
		}
	}
	for _, path := range []string{"/upload", "/proxy/upload"} {
		name := ", " + path
		attacks["a body shorter than announced"+name] = func(c *rawConn) {
			_ = c.WriteData(c.open(false, "POST", path, "content-length", "10"), true, []byte("abc"))
		}
		attacks["a body longer than announced"+name] = func(c *rawConn) {
			_ = c.WriteData(c.open(false, "POST", path, "content-length", "1"), false, []byte("abc"))
		}
		attacks["a body too large"+name] = func(c *rawConn) {
			id := c.open(false, "POST", path, "content-length", "99999999")
			_ = c.WriteData(id, false, []byte("abc"))
		}
		attacks["a body broken off"+name] = func(c *rawConn) {
			id := c.open(false, "POST", path)
			_ = c.WriteData(id, false, []byte("abc"))
			_ = c.WriteRSTStream(id, http2.ErrCodeInternal)
		}
		attacks["a body that stalls"+name] = func(c *rawConn) { _ = c.WriteData(c.open(false, "POST", path), false, []byte("abc")) }
		attacks["an Expect broken off"+name] = func(c *rawConn) {
			_ = c.WriteRSTStream(c.open(false, "POST", path, "expect", "100-continue", "content-length", "3"), http2.ErrCodeNo)
		}
	}
	for _, path := range []string{"/hints", "/proxy/hints", "/big", "/proxy/big"} {
		if race.Enabled && path == "/proxy/hints" {
			continue // httputil.ReverseProxy clears the header of a 103 while net/http still writes it to a client that left
		}
		attacks["leaves "+path] = func(c *rawConn) { _ = c.WriteRSTStream(c.open(true, "GET", path), http2.ErrCodeRefusedStream) }
	}
	return attacks
}

// trailers uploads something that ends with these fields, through a proxy.
func trailers(c *rawConn, fields ...string) uint32 {
	id := c.open(false, "POST", "/proxy/upload")
	_ = c.WriteData(id, false, []byte("abc"))
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.encode(fields...), EndHeaders: true, EndStream: true})
	return id
}

// What a client does with the frames of HTTP/2 changes nothing for the others, neither at the service nor at one that the service
// calls, while it lasts and after it, and teaches no latency.
func TestAttacksOnAnHTTP2Server(t *testing.T) {
	require.GreaterOrEqual(t, len(http2Attacks()), 40)
	for name, attack := range http2Attacks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			before := s.innocent(t)
			repeat(func(int) {
				c := dialRaw(t, s.address)
				attack(c)
				c.settle()
				c.hangUp()
			})
			require.Equal(t, before, s.innocent(t))
			for i, p := range []*gatetest.Recorder{s.front, s.back} {
				require.Equal(t, breaker.Closed, s.brk[i].Stats().State)
				require.Eventually(t, func() bool { return p.InFlight() == 0 }, time.Minute, 5*time.Millisecond, "nothing is left behind")
				require.NotContains(t, p.Outcomes(), spillway.Failure)
				require.NotContains(t, p.Outcomes(), spillway.Dropped)
			}
			require.Zero(t, s.m.Stats().LongLived)
		})
	}
}

// discardLog says nothing of the errors that attacks cause.
func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }
