package grpcgate_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A rawConn is a connection of HTTP/2 whose frames are written one by one, right or wrong. Errors of writing are not looked
// at: the other side may have closed the connection, as it should.
type rawConn struct {
	net.Conn
	*http2.Framer

	block bytes.Buffer
	enc   *hpack.Encoder
	id    uint32        // of the last stream
	acked chan struct{} // when the other side has read all
	ended chan struct{} // when it has closed
}

// dialRaw connects to target and says hello. What the other side sends is thrown away.
func dialRaw(t testing.TB, target string, settings ...http2.Setting) *rawConn {
	t.Helper()
	c := dialSilent(t, target)
	_, _ = io.WriteString(c.Conn, http2.ClientPreface)
	_ = c.WriteSettings(settings...)
	_ = c.WriteSettingsAck()
	return c
}

// dialSilent connects to target and says nothing.
func dialSilent(t testing.TB, target string) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", target)
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute))) // so that nothing can hang for ever
	c := newRawConn(conn)
	c.acked, c.ended = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(c.ended)
		for {
			switch f, err := c.ReadFrame(); f := f.(type) {
			case nil:
				if err != nil {
					return
				}
			case *http2.PingFrame:
				if f.IsAck() && f.Data == lastPing {
					close(c.acked)
				}
			}
		}
	}()
	return c
}

// lastPing is the ping that a rawConn sends at the end.
var lastPing = [8]byte{'l', 'a', 's', 't'}

// settle waits until the other side has read all, or has closed.
func (c *rawConn) settle() {
	_ = c.WritePing(false, lastPing)
	select {
	case <-c.acked:
	case <-c.ended:
	case <-time.After(time.Second): // it waits for the rest of a frame
	}
}

func newRawConn(conn net.Conn) *rawConn {
	c := &rawConn{Conn: conn, Framer: http2.NewFramer(conn, conn)}
	c.AllowIllegalWrites = true
	c.enc = hpack.NewEncoder(&c.block)
	return c
}

// call opens a stream for method with further header fields, in pairs, and returns its number.
func (c *rawConn) call(method string, fields ...string) uint32 {
	return c.request(append([]string{
		":method", "POST", ":scheme", "http", ":path", method, ":authority", "localhost",
		"content-type", "application/grpc", "te", "trailers", "tenant", "mallory",
	}, fields...)...)
}

// request opens a stream with exactly these header fields, in pairs.
func (c *rawConn) request(fields ...string) uint32 {
	if c.id == 0 {
		c.id = 1
	} else {
		c.id += 2
	}
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: c.id, BlockFragment: c.encode(fields...), EndHeaders: true})
	return c.id
}

func (c *rawConn) encode(fields ...string) []byte {
	c.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = c.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // a Buffer takes everything
	}
	return c.block.Bytes()
}

// message sends one, with any format and length, and perhaps ends the stream.
func (c *rawConn) message(id uint32, end bool, format byte, length uint32, payload []byte) {
	head := binary.BigEndian.AppendUint32([]byte{format}, length)
	_ = c.WriteData(id, end, append(head, payload...))
}

// plain sends a message as it should be.
func (c *rawConn) plain(id uint32, end bool, payload []byte) {
	c.message(id, end, 0, uint32(len(payload)), payload)
}

// hangUp closes the connection and waits until nothing is read any more.
func (c *rawConn) hangUp() {
	_ = c.Close()
	<-c.ended
}

// text is the encoding of a message of the tests, valid or not.
func text(s string) []byte {
	return append(binary.AppendUvarint([]byte{0x0a}, uint64(len(s))), s...)
}
