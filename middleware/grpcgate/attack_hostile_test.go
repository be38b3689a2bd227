package grpcgate_test

import (
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/grpcgate"
)

// A script is what a hostile server does on a connection on which it has said hello and got the header of call id.
type script func(c *rawConn, id uint32)

// hostile serves script over TCP and returns its address.
func hostile(t *testing.T, hello bool, run script) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(20 * time.Second)) // so that nothing can hang for ever
				serveHostile(newRawConn(conn), hello, run)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

func serveHostile(c *rawConn, hello bool, run script) {
	if !hello {
		run(c, 0)
		return
	}
	if _, err := io.CopyN(io.Discard, c.Conn, int64(len(http2.ClientPreface))); err != nil {
		return
	}
	_ = c.WriteSettings()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = c.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			run(c, f.StreamID)
		}
	}
}

// header answers with these fields, which end the stream or not.
func (c *rawConn) header(id uint32, end bool, fields ...string) {
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.encode(fields...), EndHeaders: true, EndStream: end})
}

func (c *rawConn) ok(id uint32) {
	c.header(id, false, ":status", "200", "content-type", "application/grpc")
}

// answers makes a script that ends each call with these fields.
func answers(fields ...string) script {
	return func(c *rawConn, id uint32) {
		c.header(id, true, append([]string{":status", "200", "content-type", "application/grpc"}, fields...)...)
	}
}

// sends makes a script that answers each call with these octets.
func sends(format byte, length uint32, payload []byte, fields ...string) script {
	return func(c *rawConn, id uint32) {
		c.header(id, false, append([]string{":status", "200", "content-type", "application/grpc"}, fields...)...)
		c.message(id, false, format, length, payload)
		c.header(id, true, "grpc-status", "0")
	}
}

func hostileScripts() map[string]script {
	scripts := map[string]script{
		"a status that is no number": answers("grpc-status", "x"),
		"a status of the future":     answers("grpc-status", "99"),
		"a negative status":          answers("grpc-status", "-1"),
		"no status":                  func(c *rawConn, id uint32) { c.ok(id); _ = c.WriteData(id, true, nil) },
		"details of garbage":         answers("grpc-status", "13", "grpc-status-details-bin", "!!!"),
		"a pushback of no number":    answers("grpc-status", "14", "grpc-retry-pushback-ms", "x"),
		"a pushback of all time":     answers("grpc-status", "14", "grpc-retry-pushback-ms", "99999999999999"),
		"two pushbacks":              answers("grpc-status", "14", "grpc-retry-pushback-ms", "1", "grpc-retry-pushback-ms", "2"),
		"HTTP 500":                   func(c *rawConn, id uint32) { c.header(id, true, ":status", "500") },
		"HTTP of no number":          func(c *rawConn, id uint32) { c.header(id, true, ":status", "x") },
		"no gRPC":                    func(c *rawConn, id uint32) { c.header(id, true, ":status", "200", "content-type", "text/html") },
		"hints without end":          func(c *rawConn, id uint32) { repeatHint(c, id) },
		"trailers only, twice":       func(c *rawConn, id uint32) { c.ok(id); c.ok(id); c.ok(id) },
		"a header of 100 KiB":        answers("grpc-status", "0", "x", strings.Repeat("x", 100<<10)),
		"silence":                    func(*rawConn, uint32) {},
		"a header, then silence":     func(c *rawConn, id uint32) { c.ok(id) },
		"half a message":             func(c *rawConn, id uint32) { c.ok(id); c.message(id, false, 0, 500, []byte("abc")) },
		"a message cut off":          sends(0, 500, []byte("abc")),
		"a message too large":        sends(0, 8*messageSize, make([]byte, 100)),
		"a message of garbage":       sends(0, 3, []byte{0x0a, 0x7f, 'x'}),
		"invalid UTF-8":              sends(0, 4, text("\xff\xfe")),
		"garbage for gzip":           sends(1, 5, []byte("abcde"), "grpc-encoding", "gzip"),
		"an unknown compressor":      sends(1, 5, []byte("abcde"), "grpc-encoding", "none-such"),
		"compressed without a name":  sends(1, 5, []byte("abcde")),
		"an unknown format":          sends(7, 5, []byte("abcde")),
		"messages without end":       flood,
		"data without a header":      func(c *rawConn, id uint32) { c.plain(id, true, text("a")) },
		"data of nobody":             func(c *rawConn, _ uint32) { c.plain(99, true, text("a")) },
		"data beyond the window":     func(c *rawConn, id uint32) { c.ok(id); floodData(c, id) },
		"GOAWAY":                     func(c *rawConn, _ uint32) { _ = c.WriteGoAway(0, http2.ErrCodeNo, nil) },
		"GOAWAY, enhance your calm": func(c *rawConn, id uint32) {
			_ = c.WriteGoAway(id, http2.ErrCodeEnhanceYourCalm, []byte("too_many_pings"))
		},
		"hangs up":                    func(c *rawConn, _ uint32) { _ = c.Close() },
		"pings without end":           func(c *rawConn, _ uint32) { floodPings(c) },
		"settings of nothing":         func(c *rawConn, _ uint32) { _ = c.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams}) },
		"windows of nothing":          func(c *rawConn, _ uint32) { _ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize}) },
		"settings that are forbidden": func(c *rawConn, _ uint32) { _ = c.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1}) },
		"windows beyond the bound":    func(c *rawConn, id uint32) { _ = c.WriteWindowUpdate(id, 1<<31-1); _ = c.WriteWindowUpdate(0, 1<<31-1) },
		"a header of garbage": func(c *rawConn, id uint32) {
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff}, EndHeaders: true})
		},
		"a promise to push": func(c *rawConn, id uint32) {
			_ = c.WritePushPromise(http2.PushPromiseParam{StreamID: id, PromiseID: 2, BlockFragment: c.encode(":method", "GET"), EndHeaders: true})
		},
		"frames of no type":        func(c *rawConn, id uint32) { _ = c.WriteRawFrame(0x77, 0xff, id, make([]byte, 100)) },
		"frames that are too long": func(c *rawConn, id uint32) { _ = c.WriteRawFrame(http2.FrameData, 0, id, make([]byte, 1<<20)) },
		"garbage between frames":   func(c *rawConn, _ uint32) { _, _ = io.WriteString(c.Conn, strings.Repeat("\xff", 100)) },
	}
	for code := http2.ErrCodeNo; code <= http2.ErrCodeHTTP11Required; code++ {
		scripts["resets by "+code.String()] = func(c *rawConn, id uint32) { _ = c.WriteRSTStream(id, code) }
	}
	for code := 1; code <= 16; code++ {
		scripts["answers "+strconv.Itoa(code)] = answers("grpc-status", strconv.Itoa(code))
	}
	return scripts
}

func repeatHint(c *rawConn, id uint32) {
	for range 100 {
		c.header(id, false, ":status", "103")
	}
}

func flood(c *rawConn, id uint32) {
	c.ok(id)
	for range 200 {
		c.plain(id, false, text("hello"))
	}
}

func floodData(c *rawConn, id uint32) {
	for range 20 {
		_ = c.WriteData(id, false, make([]byte, 16<<10))
	}
}

func floodPings(c *rawConn) {
	for range 100 {
		_ = c.WritePing(false, [8]byte{})
	}
}

// Servers that break every rule harm no call to another server through the same gate, and no call to them stays behind.
func TestAttacksOnAClientByItsServers(t *testing.T) {
	scripts := hostileScripts()
	require.GreaterOrEqual(t, len(scripts), 40)
	for name, run := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attackedByServer(t, hostile(t, true, run))
		})
	}
	for name, run := range map[string]script{
		"hangs up at once":      func(*rawConn, uint32) {},
		"speaks HTTP/1":         func(c *rawConn, _ uint32) { _, _ = io.WriteString(c.Conn, "HTTP/1.1 400 Bad Request\r\n\r\n") },
		"never says hello":      func(c *rawConn, _ uint32) { _, _ = io.Copy(io.Discard, c.Conn) },
		"says hello by garbage": func(c *rawConn, _ uint32) { _, _ = io.WriteString(c.Conn, strings.Repeat("\x00", 100)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attackedByServer(t, hostile(t, false, run))
		})
	}
}

func attackedByServer(t *testing.T, address string) {
	t.Helper()
	seen := &gatetest.Recorder{}
	breakers := spillway.Must(breaker.NewKeyed(nil))
	c := gatedClient(t, &grpcgate.ClientOptions{Stream: func(m string) grpcgate.StreamMode {
		return map[string]grpcgate.StreamMode{downMethod: grpcgate.WholeStream, upMethod: grpcgate.PerMessage}[m]
	}, MaxStreams: 20}, seen, breakers)
	good := start(t, true, victim(), nil, through(c),
		func(srv *grpc.Server) { healthpb.RegisterHealthServer(srv, health.NewServer()) })
	before := innocent(t, good)
	bad := dial(t, address, append(through(c), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageSize)))...)
	p := &proxy{c: c, seen: seen, conn: bad}
	repeat(func(i int) {
		ctx, cancel := attackContext(200 * time.Millisecond)
		defer cancel()
		one(ctx, p, []string{echoMethod, downMethod, upMethod, chatMethod}[i%4], "hello")
	})
	require.Equal(t, before, innocent(t, good))
	require.Eventually(t, func() bool { return seen.InFlight() == 0 && c.Stats().Streams == 0 }, time.Minute, 5*time.Millisecond)
}

// A place that a hanging server holds is one that another server cannot be denied.
func TestHangingServerLeavesPlacesForOthers(t *testing.T) {
	c := gatedClient(t, &grpcgate.ClientOptions{MaxStreams: 10}, admitter{})
	hanging, other := start(t, true, victim(), nil, through(c)), start(t, true, victim(), nil, through(c))
	ctx := t.Context()
	var open []grpc.ClientStream // kept: a stream that nobody holds gives its place back
	for range 10 {
		stream, err := openStream(ctx, hanging, chatMethod)
		if err != nil {
			require.ErrorIs(t, err, spillway.ErrRejected)
			continue
		}
		say(t, stream, "hello")
		open = append(open, stream)
	}
	require.Len(t, open, 5)
	stream, err := openStream(ctx, other, chatMethod)
	require.NoError(t, err)
	say(t, stream, "hello")
	require.Equal(t, grpcgate.Stats{Streams: 6, StreamsRefused: 5}, c.Stats())
	runtime.KeepAlive(open)
	runtime.KeepAlive(stream)
}
