package main

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// extendedConnect makes net/http accept the extended CONNECT of RFC 8441. It is read when a process starts.
const extendedConnect = "http2xconnect=1"

// A tunnel over HTTP/2 is a long-lived request, however it ends. This test runs itself again with extendedConnect.
func TestTunnelOverHTTP2(t *testing.T) {
	if !strings.Contains(os.Getenv("GODEBUG"), extendedConnect) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=60s")
		cmd.Env = append(os.Environ(), "GODEBUG="+extendedConnect)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: "+t.Name())
		return
	}
	t.Run("opened and ended by the client", func(t *testing.T) {
		s := serveTunnels(t)
		c := s.connect(t)
		c.headers(t, 1)
		require.Equal(t, "200", c.status(t, 1))
		s.open(t, 1)
		for _, text := range []string{"hello", "and again"} {
			require.NoError(t, c.WriteData(1, false, []byte(text)))
			require.Equal(t, text, c.data(t, 1, len(text)))
		}
		require.NoError(t, c.WriteData(1, true, nil))
		s.closed(t, 1)
	})
	t.Run("client vanishes", func(t *testing.T) {
		s := serveTunnels(t)
		c := s.connect(t)
		for i := range 5 {
			id := uint32(2*i + 1)
			c.headers(t, id)
			require.Equal(t, "200", c.status(t, id))
		}
		s.open(t, 5)
		require.NoError(t, c.conn.Close())
		s.closed(t, 5)
	})
	t.Run("reset", func(t *testing.T) {
		s := serveTunnels(t)
		c := s.connect(t)
		c.headers(t, 1)
		require.Equal(t, "200", c.status(t, 1))
		s.open(t, 1)
		require.NoError(t, c.WriteRSTStream(1, http2.ErrCodeCancel))
		s.closed(t, 1)
	})
	t.Run("client vanishes before it is open", func(t *testing.T) {
		s := serveTunnels(t)
		c := s.connect(t)
		c.headers(t, 1, ":path", "/slow")
		<-s.slow
		require.Equal(t, 1, s.p.InFlight())
		require.Zero(t, s.m.Stats().LongLived)
		require.NoError(t, c.conn.Close())
		s.closed(t, 1)
	})
	t.Run("refused by the gate, and for want of room", func(t *testing.T) {
		s := serveTunnels(t)
		c := s.connect(t)
		for i := range 7 {
			id := uint32(2*i + 1)
			c.headers(t, id)
			if i < 5 {
				require.Equal(t, "200", c.status(t, id))
				continue
			}
			require.Equal(t, "503", c.status(t, id)) // at once, though its body has not ended
		}
		require.Equal(t, int64(2), s.m.Stats().LongLivedRefused)
		s.open(t, 5)
		require.NoError(t, c.WriteData(1, true, nil))
		require.Eventually(t, func() bool { return s.m.Stats().LongLived == 4 }, 20*time.Second, time.Millisecond)
		s.p.Refuse(errFull)
		c.headers(t, 15)
		require.Equal(t, "503", c.status(t, 15))
		s.p.Refuse(nil)
		c.headers(t, 17)
		require.Equal(t, "200", c.status(t, 17))
		require.NoError(t, c.conn.Close())
		s.closed(t, 6)
	})
	t.Run("turned down by the handler", func(t *testing.T) {
		s := serveTunnels(t)
		c := s.connect(t)
		c.headers(t, 1, ":path", "/broken")
		require.Equal(t, "500", c.status(t, 1))
		require.Equal(t, []spillway.Outcome{spillway.Failure}, ended(t, s.p))
		require.Zero(t, s.m.Stats().LongLived)
	})
}

// A tunnels is a server of tunnels over HTTP/2, five at once.
type tunnels struct {
	srv  *httptest.Server
	p    *gatetest.Recorder
	m    *httpgate.Middleware
	slow chan struct{} // gets one for each request of /slow
}

func serveTunnels(t *testing.T) *tunnels {
	t.Helper()
	s := &tunnels{p: &gatetest.Recorder{}, slow: make(chan struct{}, 1)}
	m, err := httpgate.New(spillway.New(s.p), &httpgate.Options{MaxLongLived: 5})
	require.NoError(t, err)
	s.m = m
	mux := http.NewServeMux()
	mux.HandleFunc("/chat", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		_, _ = io.Copy(flushing{w}, r.Body)
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		s.slow <- struct{}{}
		<-r.Context().Done()
		w.WriteHeader(http.StatusInternalServerError)
	})
	mux.HandleFunc("/broken", status(http.StatusInternalServerError))
	s.srv = httptest.NewUnstartedServer(m.Handler(mux))
	s.srv.EnableHTTP2 = true
	s.srv.StartTLS()
	t.Cleanup(s.srv.Close)
	return s
}

// open requires that n tunnels are open, and that they have left the gate, which learnt nothing.
func (s *tunnels) open(t *testing.T, n int) {
	t.Helper()
	require.Equal(t, int64(n), s.m.Stats().LongLived)
	require.Zero(t, s.p.InFlight())
}

// closed waits until all is over, and requires that the gate has seen n tunnels and learnt nothing of them.
func (s *tunnels) closed(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return s.m.Stats().LongLived == 0 && s.p.InFlight() == 0 }, 20*time.Second, time.Millisecond)
	require.Len(t, s.p.Outcomes(), n)
	for _, o := range s.p.Outcomes() {
		require.Equal(t, spillway.Ignored, o)
	}
}

// A rawConn is a connection of a client that sends frames by itself.
type rawConn struct {
	*http2.Framer
	conn io.Closer
}

func (s *tunnels) connect(t *testing.T) *rawConn {
	t.Helper()
	conf := s.srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	conf.NextProtos = []string{http2.NextProtoTLS}
	conn, err := tls.Dial("tcp", s.srv.Listener.Addr().String(), conf)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	c := &rawConn{Framer: http2.NewFramer(conn, conn), conn: conn}
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	require.NoError(t, c.WriteSettings())
	settings := frame(t, c, func(*http2.SettingsFrame) bool { return true })
	offered, _ := settings.Value(http2.SettingEnableConnectProtocol)
	require.Equal(t, uint32(1), offered)
	require.NoError(t, c.WriteSettingsAck())
	return c
}

// headers asks for a tunnel on a stream, with other fields in pairs of name and value.
func (c *rawConn) headers(t *testing.T, id uint32, others ...string) {
	t.Helper()
	fields := []string{
		":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", "example.com", ":path", "/chat",
		"sec-websocket-version", "13",
	}
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		value := fields[i+1]
		for j := 0; j < len(others); j += 2 {
			if others[j] == fields[i] {
				value = others[j+1]
			}
		}
		require.NoError(t, enc.WriteField(hpack.HeaderField{Name: fields[i], Value: value}))
	}
	require.NoError(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}))
}

// frame reads until a frame of type F comes that is wanted.
func frame[F http2.Frame](t *testing.T, c *rawConn, wanted func(F) bool) F {
	t.Helper()
	for {
		f, err := c.ReadFrame()
		require.NoError(t, err)
		if f, ok := f.(F); ok && wanted(f) {
			return f
		}
	}
}

// status returns the status of the answer on a stream.
func (c *rawConn) status(t *testing.T, id uint32) string {
	t.Helper()
	return frame(t, c, func(f *http2.MetaHeadersFrame) bool { return f.StreamID == id }).PseudoValue("status")
}

// data returns the next n bytes on a stream.
func (c *rawConn) data(t *testing.T, id uint32, n int) (got string) {
	t.Helper()
	for len(got) < n {
		got += string(frame(t, c, func(f *http2.DataFrame) bool { return f.StreamID == id }).Data())
	}
	return got
}
