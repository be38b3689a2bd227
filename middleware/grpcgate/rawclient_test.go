package grpcgate_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// The types of HTTP/2 frames and their flags that a raw client looks for.
const (
	frameHeaders = 1
	flagEnd      = 1
	frameHeader  = 9 // octets
)

// A rawClient is a connection on which a client makes n unary calls, some at a time, and throws the answers away. It costs
// next to nothing, so that the time is that of the server alone. The calls are the same octets with another stream number.
type rawClient struct {
	net.Conn
	call     []byte // HEADERS and DATA
	data     int    // where DATA begins in call
	n        int
	atOnce   int
	closed   chan struct{}
	closing  sync.Once
	left     []byte // to be read by the server
	sent     int
	mu       sync.Mutex
	wake     *sync.Cond
	answered int
	header   []byte // of a frame that was written in part
	skip     int    // octets of the payload of a frame that are still to be written
}

func newRawClient(method string, message []byte, n, atOnce int) *rawClient {
	c := &rawClient{n: n, atOnce: atOnce, closed: make(chan struct{})}
	c.wake = sync.NewCond(&c.mu)
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	enc.SetMaxDynamicTableSize(0) // so that each block means the same
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method},
		{Name: ":authority", Value: "localhost"}, {Name: "content-type", Value: "application/grpc"},
		{Name: "user-agent", Value: "raw"}, {Name: "te", Value: "trailers"},
	} {
		_ = enc.WriteField(f) // a Buffer takes everything
	}
	payload := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	var call bytes.Buffer
	fr := http2.NewFramer(&call, nil)
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	c.data = call.Len()
	_ = fr.WriteData(1, true, append(payload, message...))
	c.call = call.Bytes()

	var begin bytes.Buffer
	begin.WriteString(http2.ClientPreface)
	fr = http2.NewFramer(&begin, nil)
	_ = fr.WriteSettings()
	_ = fr.WriteWindowUpdate(0, 1<<31-1-65535)
	c.left = begin.Bytes()
	return c
}

func (c *rawClient) Read(p []byte) (int, error) {
	if len(c.left) == 0 {
		if !c.next() {
			<-c.closed
			return 0, io.EOF
		}
	}
	n := copy(p, c.left)
	c.left = c.left[n:]
	return n, nil
}

// next makes the next call, when there is room for it, and reports whether there is one.
func (c *rawClient) next() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.answered < c.n && (c.sent == c.n || c.sent-c.answered >= c.atOnce) {
		c.wake.Wait()
	}
	if c.answered == c.n {
		c.closing.Do(func() { close(c.closed) })
		return false
	}
	id := uint32(2*c.sent + 1)
	binary.BigEndian.PutUint32(c.call[5:], id)
	binary.BigEndian.PutUint32(c.call[c.data+5:], id)
	c.sent++
	c.left = c.call
	return true
}

// Write counts the answers, by the flag that ends a stream.
func (c *rawClient) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for rest := p; len(rest) > 0; {
		if c.skip > 0 {
			n := min(c.skip, len(rest))
			c.skip -= n
			rest = rest[n:]
			continue
		}
		n := min(frameHeader-len(c.header), len(rest))
		c.header = append(c.header, rest[:n]...)
		rest = rest[n:]
		if len(c.header) == frameHeader {
			c.skip = int(c.header[0])<<16 | int(c.header[1])<<8 | int(c.header[2])
			if c.header[3] == frameHeaders && c.header[4]&flagEnd != 0 {
				c.answered++
				c.wake.Signal()
			}
			c.header = c.header[:0]
		}
	}
	return len(p), nil
}

func (c *rawClient) Close() error {
	c.closing.Do(func() { close(c.closed) })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = c.n
	c.wake.Broadcast()
	return nil
}
func (*rawClient) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*rawClient) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*rawClient) SetDeadline(time.Time) error      { return nil }
func (*rawClient) SetReadDeadline(time.Time) error  { return nil }
func (*rawClient) SetWriteDeadline(time.Time) error { return nil }

// oneConn is a listener that accepts one connection.
type oneConn struct {
	conn chan net.Conn
	done chan struct{}
	once sync.Once
}

func listen(c net.Conn) *oneConn {
	l := &oneConn{conn: make(chan net.Conn, 1), done: make(chan struct{})}
	l.conn <- c
	return l
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, io.EOF
	}
}
func (l *oneConn) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }
