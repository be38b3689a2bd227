package httpgate

import (
	"crypto/tls"
	"net"
	"runtime"
	"sync/atomic"

	"github.com/spillway-go/spillway"
)

// A hold belongs to a hijacked connection until it is closed. It is a place among the long-lived requests, or the
// permit of its request if there was no room.
type hold struct {
	m      *Middleware
	key    string
	place  bool
	permit *spillway.Permit
	given  atomic.Bool
}

func (h *hold) release() {
	switch {
	case !h.given.CompareAndSwap(false, true):
	case h.place:
		h.m.long.leave(h.key)
	default:
		h.permit.Done(spillway.Ignored)
	}
}

// The connections of a server, each with all its methods and a Close that gives back the hold.
type (
	tcpConn struct {
		*net.TCPConn
		hold *hold
	}
	tlsConn struct {
		*tls.Conn
		hold *hold
	}
	otherConn struct {
		net.Conn
		hold *hold
	}
)

func (c *tcpConn) Close() error {
	c.hold.release()
	return c.TCPConn.Close() //nolint:wrapcheck // a connection adds nothing to an error
}

func (c *tlsConn) Close() error {
	c.hold.release()
	return c.Conn.Close() //nolint:wrapcheck // as above
}

func (c *otherConn) Close() error {
	c.hold.release()
	return c.Conn.Close() //nolint:wrapcheck // as above
}

// NetConn returns the connection inside, like NetConn of a tls.Conn.
func (c *tcpConn) NetConn() net.Conn { return c.TCPConn }

// NetConn returns the connection inside.
func (c *otherConn) NetConn() net.Conn { return c.Conn }

// holding returns c with h, which is released by Close, or by the garbage collector if nobody closes c.
func holding(c net.Conn, h *hold) net.Conn {
	switch c := c.(type) {
	case *net.TCPConn:
		return cleaned(&tcpConn{c, h}, h)
	case *tls.Conn:
		return cleaned(&tlsConn{c, h}, h)
	default:
		return cleaned(&otherConn{c, h}, h)
	}
}

func cleaned[T any, P interface {
	*T
	net.Conn
}](c P, h *hold) net.Conn {
	runtime.AddCleanup((*T)(c), (*hold).release, h)
	return c
}
