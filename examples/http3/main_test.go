package main

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

var errFull = &spillway.Rejection{Policy: "fake", Reason: "full"}

// A site is a server of HTTP/3 and what its clients need.
type site struct {
	addr   string
	client *http.Client
	tls    *tls.Config // of clients
}

// serve starts a server of HTTP/3 on loopback.
func serve(t *testing.T, h http.Handler) *site {
	t.Helper()
	https := httptest.NewTLSServer(nil) // for its certificate
	https.Close()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := &http3.Server{
		Handler: h, TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: https.TLS.Certificates}),
		Logger: slog.New(slog.DiscardHandler),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(conn)
	}()
	s := &site{addr: conn.LocalAddr().String(), tls: https.Client().Transport.(*http.Transport).TLSClientConfig}
	tr := &http3.Transport{TLSClientConfig: s.tls.Clone()}
	s.client = &http.Client{Transport: tr, Timeout: 30 * time.Second}
	t.Cleanup(func() {
		tr.Close()
		srv.Close()
		<-served
		conn.Close()
	})
	return s
}

// send sends body to path, and returns the answer with what can be read of its body.
func (s *site) send(ctx context.Context, path string, body io.Reader) (res *http.Response, got string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+s.addr+path, body)
	if err != nil {
		return nil, "", err
	}
	res, err = s.client.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res, string(b), err
}

// ended waits until nothing is in flight, and returns the outcomes.
func ended(t *testing.T, p *gatetest.Recorder) []spillway.Outcome {
	t.Helper()
	require.Eventually(t, func() bool { return len(p.Requests()) > 0 && p.InFlight() == 0 }, 20*time.Second, time.Millisecond)
	return p.Outcomes()
}

func TestTheServiceOverHTTP3(t *testing.T) {
	p := &gatetest.Recorder{}
	s := serve(t, newHandler(spillway.New(p)))
	res, err := s.client.Get("https://" + s.addr + "/work?for=1ms")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, "HTTP/3.0", res.Proto)
	require.Equal(t, []spillway.Outcome{spillway.Success}, ended(t, p))

	p.Refuse(errFull)
	res, err = s.client.Get("https://" + s.addr + "/work")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.NotEmpty(t, res.Header.Get("Retry-After"))
	require.Equal(t, "application/problem+json", res.Header.Get("Content-Type"))
	res, err = s.client.Get("https://" + s.addr + "/livez")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)
}

// The outcome that the gate counts is the one that the client saw.
func TestBookedIsWhatTheClientSaw(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		body    string
		status  int    // 0 if the client gets no answer
		answer  string // as far as it came
		broken  bool
		want    spillway.Outcome
	}{
		"nothing":     {handler: func(http.ResponseWriter, *http.Request) {}, status: 200, want: spillway.Success},
		"echo":        {handler: echo, body: big, status: 200, answer: big, want: spillway.Success},
		"not found":   {handler: http.NotFound, status: 404, answer: "404 page not found\n", want: spillway.Ignored},
		"error":       {handler: status(500), status: 500, want: spillway.Failure},
		"unavailable": {handler: status(503), status: 503, want: spillway.Dropped},
		"early hints": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusInternalServerError)
		}, status: 500, want: spillway.Failure},
		"panic": {handler: func(http.ResponseWriter, *http.Request) { panic("broken") }, broken: true, want: spillway.Failure},
		"panic after a flush": {handler: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic("broken")
		}, status: 200, broken: true, want: spillway.Failure},
		"error after a flush": {handler: func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			w.WriteHeader(http.StatusInternalServerError)
		}, status: 200, want: spillway.Success},
	} {
		t.Run(name, func(t *testing.T) {
			p := &gatetest.Recorder{}
			s := serve(t, httpgate.Handler(spillway.New(p), nil)(c.handler))
			res, got, err := s.send(t.Context(), "/", strings.NewReader(c.body))
			if c.broken {
				require.Error(t, err)
			} else {
				require.NoError(t, err)
				require.Equal(t, c.answer, got)
			}
			if c.status > 0 && res != nil { // after a panic, the header may be lost with the rest
				require.Equal(t, c.status, res.StatusCode)
			}
			require.Equal(t, []spillway.Outcome{c.want}, ended(t, p))
		})
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func echo(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }

// The trailers of a request reach the handler, and those of the answer the client, as they do without a gate.
func TestTrailers(t *testing.T) {
	for name, gated := range map[string]func(http.Handler) http.Handler{
		"bare":  func(h http.Handler) http.Handler { return h },
		"gated": httpgate.Handler(spillway.New(), nil),
	} {
		s := serve(t, gated(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "Sum")
			_, err := io.Copy(w, r.Body)
			assert.NoError(t, err)
			w.Header().Set("Sum", r.Trailer.Get("Sum"))
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		})))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.addr, strings.NewReader("body"))
		require.NoError(t, err)
		r.Trailer = http.Header{"Sum": {"42"}}
		res, err := s.client.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, "body", string(body), name)
		require.Equal(t, http.Header{"Sum": {"42"}, "Grpc-Status": {"0"}}, res.Trailer, name)
	}
}

// A flush reaches the client while the handler runs.
func TestFlush(t *testing.T) {
	p := &gatetest.Recorder{}
	read := make(chan struct{})
	s := serve(t, httpgate.Handler(spillway.New(p), nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first")
		w.(http.Flusher).Flush()
		<-read
		_, _ = io.WriteString(w, "second")
	})))
	res, err := s.client.Get("https://" + s.addr)
	require.NoError(t, err)
	first := make([]byte, 5)
	_, err = io.ReadFull(res.Body, first)
	require.NoError(t, err)
	require.Equal(t, "first", string(first))
	require.Equal(t, 1, p.InFlight())
	close(read)
	rest, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, "second", string(rest))
	require.Equal(t, []spillway.Outcome{spillway.Success}, ended(t, p))
}

// A refusal waits for no body, however long it is and whether it comes.
func TestRefusedAtOnce(t *testing.T) {
	s := serve(t, httpgate.Handler(spillway.New(gatetest.Refusing(errFull)), nil)(http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { t.Error("the handler of a refused request ran") })))
	never, w := io.Pipe()
	defer w.Close()
	for _, body := range []io.Reader{nil, strings.NewReader("body"), strings.NewReader(strings.Repeat("x", 1<<20)), never} {
		res, got, err := s.send(t.Context(), "/", body) // the client gives up after 30 s
		require.NoError(t, err)
		require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
		require.Contains(t, got, "temporary server capacity")
	}
}

// A client that leaves was not failed by the service, whatever the handler makes of it.
func TestClientThatLeaves(t *testing.T) {
	for name, leave := range map[string]func(cancel func(), body *io.PipeWriter, s *site){
		"cancels":               func(cancel func(), _ *io.PipeWriter, _ *site) { cancel() },
		"breaks off its body":   func(_ func(), body *io.PipeWriter, _ *site) { _ = body.CloseWithError(io.ErrClosedPipe) },
		"closes its connection": func(_ func(), _ *io.PipeWriter, s *site) { _ = s.client.Transport.(*http3.Transport).Close() },
	} {
		for _, path := range []string{"/reads", "/waits"} {
			if path == "/waits" && name == "breaks off its body" {
				continue // a client that still waits for its answer has not left
			}
			t.Run(name+path, func(t *testing.T) {
				p := &gatetest.Recorder{}
				running := make(chan struct{})
				s := serve(t, httpgate.Handler(spillway.New(p), nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					close(running)
					if path == "/waits" {
						<-r.Context().Done()
					} else if _, err := io.ReadAll(r.Body); err == nil {
						t.Error("the body has no end")
					}
					w.WriteHeader(http.StatusInternalServerError)
				})))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				body, w := io.Pipe()
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					_, _, _ = s.send(ctx, path, body) // the answer may come or not
				}()
				<-running
				require.Equal(t, 1, p.InFlight())
				leave(cancel, w, s)
				<-sent
				require.Equal(t, []spillway.Outcome{spillway.Ignored}, ended(t, p))
			})
		}
	}
}

// A tunnel (RFC 9220) leaves the gate once it is open, teaches no latency, and counts as open until its handler returns,
// also if its client vanishes.
func TestTunnel(t *testing.T) {
	p := &gatetest.Recorder{}
	m, err := httpgate.New(spillway.New(p), nil)
	require.NoError(t, err)
	s := serve(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "websocket", r.Proto)
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		_, _ = io.Copy(flushing{w}, r.Body)
	})))
	tunnel, vanish := s.connect(t)
	require.NoError(t, tunnel.SetDeadline(time.Now().Add(20*time.Second)))
	res, err := tunnel.ReadResponse()
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, []spillway.Outcome{spillway.Ignored}, ended(t, p))
	require.Equal(t, int64(1), m.Stats().LongLived)
	for _, text := range []string{"hello", "and again"} {
		_, err = io.WriteString(tunnel, text)
		require.NoError(t, err)
		back := make([]byte, len(text))
		_, err = io.ReadFull(tunnel, back)
		require.NoError(t, err)
		require.Equal(t, text, string(back))
	}
	vanish()
	require.Eventually(t, func() bool { return m.Stats().LongLived == 0 }, 20*time.Second, time.Millisecond)

	p.Refuse(errFull)
	tunnel, vanish = s.connect(t)
	defer vanish()
	require.NoError(t, tunnel.SetDeadline(time.Now().Add(20*time.Second)))
	res, err = tunnel.ReadResponse()
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.Zero(t, m.Stats().LongLived)
	require.Len(t, p.Results(), 1)
}

// flushing sends what is written to it at once.
type flushing struct{ http.ResponseWriter }

func (f flushing) Write(b []byte) (int, error) {
	n, err := f.ResponseWriter.Write(b)
	f.ResponseWriter.(http.Flusher).Flush()
	return n, err
}

// connect asks for a tunnel on a connection of its own, which vanish ends.
func (s *site) connect(t *testing.T) (tunnel *http3.RequestStream, vanish func()) {
	t.Helper()
	conf := s.tls.Clone()
	conf.NextProtos = []string{http3.NextProtoH3}
	conn, err := quic.DialAddr(t.Context(), s.addr, conf, nil)
	require.NoError(t, err)
	client := (&http3.Transport{}).NewClientConn(conn)
	tunnel, err = client.OpenRequestStream(t.Context())
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodConnect, "https://"+s.addr+"/chat", nil)
	require.NoError(t, err)
	r.Proto = "websocket"
	require.NoError(t, tunnel.SendRequestHeader(r))
	return tunnel, func() { _ = client.CloseWithError(0, "") }
}
