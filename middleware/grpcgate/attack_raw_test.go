package grpcgate_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

func codeOfError(err error) codes.Code { return status.Code(err) }

// finish hangs up when the victim has read all, and has dealt with it or keeps it for longer.
func (tg *target) finish(c *rawConn) {
	c.settle()
	for range 40 {
		if tg.seen.InFlight() == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond) // the rest may wait for a deadline or for more from this client, which is no event
	}
	c.hangUp()
}

// onOne attacks on one connection, call after call.
func onOne(attack func(c *rawConn)) serverAttack {
	return func(t *testing.T, tg *target) {
		t.Helper()
		c := dialRaw(t, tg.conn.Target())
		for range attempts {
			attack(c)
		}
		tg.finish(c)
	}
}

// onMany attacks on a connection for each call.
func onMany(attack func(c *rawConn)) serverAttack {
	return func(t *testing.T, tg *target) {
		t.Helper()
		repeat(func(int) {
			c := dialRaw(t, tg.conn.Target())
			attack(c)
			tg.finish(c)
		})
	}
}

// field opens a call with one more field, and one that is complete but for it.
func field(name, value string) serverAttack {
	return onOne(func(c *rawConn) { c.plain(c.call(echoMethod, name, value), true, text("hello")) })
}

// payload opens a stream of method whose message is as told.
func payload(method string, format byte, length uint32, message []byte, fields ...string) serverAttack {
	return onOne(func(c *rawConn) { c.message(c.call(method, fields...), true, format, length, message) })
}

func reset(code http2.ErrCode, method string) serverAttack {
	return onOne(func(c *rawConn) {
		id := c.call(method)
		c.plain(id, false, text("hang"))
		_ = c.WriteRSTStream(id, code)
	})
}

func rawAttacks() map[string]serverAttack {
	return map[string]serverAttack{
		"grpc-timeout of 0":              field("grpc-timeout", "0n"),
		"grpc-timeout of 1 ms":           field("grpc-timeout", "1m"),
		"grpc-timeout beyond all bounds": field("grpc-timeout", "99999999H"),
		"grpc-timeout with a sign":       field("grpc-timeout", "-1S"),
		"grpc-timeout without a unit":    field("grpc-timeout", "100"),
		"grpc-timeout too long":          field("grpc-timeout", "123456789S"),
		"binary metadata that is none":   field("x-bin", "!!!"),
		"a field of 100 KiB":             field("x", strings.Repeat("x", 100<<10)),
		"a forbidden field":              field("connection", "close"),
		"a second authority":             field("host", "elsewhere"),
		"an unknown compressor":          payload(downMethod, 1, 5, []byte("abcde"), "grpc-encoding", "none-such"),
		"garbage for gzip":               payload(downMethod, 1, 5, []byte("abcde"), "grpc-encoding", "gzip"),
		"garbage for gzip in a call":     payload(echoMethod, 1, 5, []byte("abcde"), "grpc-encoding", "gzip"),
		"compressed without a name":      payload(downMethod, 1, 5, []byte("abcde")),
		"an unknown format":              payload(downMethod, 7, 5, []byte("abcde")),
		"a message cut off":              payload(downMethod, 0, 500, []byte("abcde")),
		"a message of 4 GiB promised":    payload(downMethod, 0, 1<<32-1, []byte("abcde")),
		"half a prefix":                  onOne(func(c *rawConn) { _ = c.WriteData(c.call(downMethod), true, []byte{0, 0}) }),
		"an upload cut off":              payload(upMethod, 0, 500, []byte("abcde")),
		"no message":                     onOne(func(c *rawConn) { _ = c.WriteData(c.call(downMethod), true, nil) }),
		"two messages for one": onOne(func(c *rawConn) {
			id := c.call(downMethod)
			c.plain(id, false, text("a"))
			c.plain(id, true, text("b"))
		}),
		"a call that is never complete": onOne(func(c *rawConn) { c.plain(c.call(echoMethod, "grpc-timeout", "150m"), false, text("hello")) }),
		"half a message, then silence": onOne(func(c *rawConn) {
			c.message(c.call(upMethod, "grpc-timeout", "150m"), false, 0, 500, []byte("abc"))
		}),
		"an unknown codec": onOne(func(c *rawConn) {
			c.plain(c.request(":method", "POST", ":scheme", "http", ":path", echoMethod, ":authority", "a",
				"content-type", "application/grpc+json", "te", "trailers", "tenant", "mallory"), true, text("hello"))
		}),
		"no trailers wanted": onOne(func(c *rawConn) {
			c.plain(c.request(":method", "POST", ":scheme", "http", ":path", echoMethod, ":authority", "a",
				"content-type", "application/grpc", "tenant", "mallory"), true, text("hello"))
		}),
		"a query in the method":           onOne(func(c *rawConn) { c.plain(c.call(echoMethod+"?x=y"), true, text("hello")) }),
		"a retry of all retries":          field("grpc-previous-rpc-attempts", "4294967295"),
		"compressors wanted by thousands": field("grpc-accept-encoding", strings.Repeat("x,", 5000)),
		"two timeouts": onOne(func(c *rawConn) {
			c.plain(c.call(echoMethod, "grpc-timeout", "1n", "grpc-timeout", "9H"), true, text("hang"))
		}),
		"a timeout of 1 ns on an upload": onOne(func(c *rawConn) { c.plain(c.call(upMethod, "grpc-timeout", "1n"), false, text("hello")) }),
		"an empty message, compressed":   payload(echoMethod, 1, 0, nil, "grpc-encoding", "gzip"),
		"ended by its header": onOne(func(c *rawConn) {
			c.id = max(c.id+2, 1)
			c.header(c.id, true, ":method", "POST", ":scheme", "http", ":path", upMethod, ":authority", "a",
				"content-type", "application/grpc", "te", "trailers", "tenant", "mallory")
		}),
		"a thousand empty messages, then a reset": onOne(func(c *rawConn) {
			id := c.call(upMethod)
			for range 1000 {
				c.plain(id, false, nil)
			}
			_ = c.WriteRSTStream(id, http2.ErrCodeCancel)
		}),
		"one octet at a time": onOne(func(c *rawConn) {
			id := c.call(echoMethod)
			for _, b := range append([]byte{0, 0, 0, 0, 7}, text("hello")...) {
				_ = c.WriteData(id, false, []byte{b})
			}
			_ = c.WriteRSTStream(id, http2.ErrCodeCancel)
		}),
		"trailers of a client": onOne(func(c *rawConn) {
			id := c.call(upMethod)
			c.plain(id, false, text("hello"))
			c.header(id, true, "grpc-status", "13", "grpc-message", "bug")
		}),
		"a call within a call": onOne(func(c *rawConn) {
			id := c.call(upMethod)
			c.header(id, false, ":method", "POST", ":scheme", "http", ":path", echoMethod, ":authority", "a")
		}),
		"windows that stay shut": onMany(func(c *rawConn) {
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			c.plain(c.call(downMethod, "grpc-timeout", "150m"), true, text("large"))
		}),
		"a table of headers of 4 GiB": onMany(func(c *rawConn) {
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1<<32 - 1})
			c.plain(c.call(echoMethod), true, text("hello"))
		}),
		"hello twice":       onMany(func(c *rawConn) { c.call(upMethod); _, _ = io.WriteString(c.Conn, http2.ClientPreface) }),
		"resets at once":    reset(http2.ErrCodeCancel, echoMethod),
		"resets of streams": reset(http2.ErrCodeInternal, downMethod),
		"resets of uploads": reset(http2.ErrCodeEnhanceYourCalm, upMethod),
		"no gRPC": onOne(func(c *rawConn) {
			c.request(":method", "POST", ":scheme", "http", ":path", echoMethod, ":authority", "a")
		}),
		"GET": onOne(func(c *rawConn) {
			c.request(":method", "GET", ":scheme", "http", ":path", echoMethod, ":authority", "a", "content-type", "application/grpc")
		}),
		"no path": onOne(func(c *rawConn) {
			c.request(":method", "POST", ":scheme", "http", ":authority", "a", "content-type", "application/grpc")
		}),
		"an empty path": onOne(func(c *rawConn) { c.call("") }),
		"no authority": onOne(func(c *rawConn) {
			c.request(":method", "POST", ":scheme", "http", ":path", echoMethod, "content-type", "application/grpc")
		}),
		"hangs up during a call":  onMany(func(c *rawConn) { c.plain(c.call(echoMethod), true, text("hang")); c.hangUp() }),
		"hangs up during streams": onMany(func(c *rawConn) { c.plain(c.call(upMethod), false, text("hang")); c.hangUp() }),
		"goes away during a call": onMany(func(c *rawConn) {
			c.plain(c.call(echoMethod, "grpc-timeout", "50m"), true, text("hang"))
			_ = c.WriteGoAway(0, http2.ErrCodeNo, nil)
		}),
		"garbage for a preface":      onMany(func(c *rawConn) { _, _ = io.WriteString(c.Conn, "GET / HTTP/1.1\r\n\r\n") }),
		"garbage between frames":     onMany(func(c *rawConn) { c.call(upMethod); _, _ = io.WriteString(c.Conn, strings.Repeat("\xff", 100)) }),
		"a stream number that was":   onMany(func(c *rawConn) { c.call(upMethod); c.id = 0; c.call(upMethod) }),
		"a stream number of servers": onMany(func(c *rawConn) { c.id = 100; c.call(upMethod) }),
		"header blocks without end": onMany(func(c *rawConn) {
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.encode(":method", "POST")})
			for range 100 {
				_ = c.WriteContinuation(1, false, c.encode("x", strings.Repeat("y", 1000)))
			}
		}),
		"header blocks of garbage": onMany(func(c *rawConn) {
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff}, EndHeaders: true})
		}),
		"data on no stream":        onMany(func(c *rawConn) { c.plain(99, true, text("hello")) }),
		"windows beyond the bound": onMany(func(c *rawConn) { c.call(upMethod); _ = c.WriteWindowUpdate(1, 1<<31-1) }),
		"windows of nothing":       onMany(func(c *rawConn) { c.call(upMethod); _ = c.WriteWindowUpdate(1, 0) }),
		"data beyond the window": onMany(func(c *rawConn) {
			id := c.call(upMethod)
			for range 20 {
				_ = c.WriteData(id, false, make([]byte, 16<<10))
			}
		}),
		"settings without end": onMany(func(c *rawConn) {
			for range 200 {
				_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
			}
		}),
		"frames of no type":        onMany(func(c *rawConn) { _ = c.WriteRawFrame(0x77, 0xff, 1, make([]byte, 100)) }),
		"frames that are too long": onMany(func(c *rawConn) { _ = c.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 1<<20)) }),
		"pings without end":        pings,
		"connections that wait":    halfOpen,
		"many streams at once":     manyStreams,
	}
}

// pings attacks by more of them than the server allows, while a call runs: it hangs up.
func pings(t *testing.T, tg *target) {
	t.Helper()
	repeat(func(int) {
		c := dialRaw(t, tg.conn.Target())
		c.plain(c.call(echoMethod), true, text("hang"))
		for range 100 {
			_ = c.WritePing(false, [8]byte{})
		}
		<-c.ended // the server has closed it
	})
}

// pingingClient is a client whose keepalive the server does not allow, with a stream that stays open.
func pingingClient(t *testing.T, tg *target) {
	t.Helper()
	conn := tg.attacker(t, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Millisecond, PermitWithoutStream: true}))
	ctx, cancel := context.WithTimeout(as("mallory"), 300*time.Millisecond)
	defer cancel()
	for range attempts {
		_ = drain(ctx, conn, downMethod, text("hello"))
	}
}

// halfOpen attacks by connections that say hello and nothing more, nothing at all, or half of it.
func halfOpen(t *testing.T, tg *target) {
	t.Helper()
	before := innocent(t, tg.conn)
	for i := range attempts {
		c := dialSilent(t, tg.conn.Target())
		_, _ = io.WriteString(c.Conn, http2.ClientPreface[:i%len(http2.ClientPreface)])
		defer c.hangUp()
		c = dialRaw(t, tg.conn.Target())
		defer c.hangUp()
	}
	require.Equal(t, before, innocent(t, tg.conn), "while they wait")
}

func manyStreams(t *testing.T, tg *target) {
	t.Helper()
	c := dialRaw(t, tg.conn.Target())
	for range 2000 {
		c.call(upMethod)
	}
	tg.finish(c)
}
