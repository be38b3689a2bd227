package overload

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

// A client speaks HTTP/1.1 over kept connections, and opens more when needed. It is written by hand because at
// thousands of requests a second net/http's own client would use more CPU than the server under test.
type client struct {
	addr    string
	request []byte

	mu   sync.Mutex
	idle []*conn // last in, first out
}

type conn struct {
	net.Conn
	r *bufio.Reader
}

// NewClient returns a client that asks the net/http server at addr for one path, over and over. An answer with status 503
// or 429 is [ErrRefused], one with another status than 2xx a failure.
func NewClient(addr, path string) Client { return newClient(addr, path) }

func newClient(addr, path string) *client {
	return &client{addr: addr, request: []byte("GET " + path + " HTTP/1.1\r\nHost: overload\r\n\r\n")}
}

// Do sends one request, as [Client] describes.
func (c *client) Do(deadline time.Time) error {
	status, err := c.do(deadline)
	if err != nil {
		return err
	}
	return statusError(status)
}

func statusError(status int) error {
	switch {
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
		return ErrRefused
	case status >= 200 && status < 300:
		return nil
	}
	return fmt.Errorf("overload: status %d", status)
}

// do sends one request and returns the status of its answer. When deadline passes it gives up and closes the
// connection, as a client with a timeout does.
func (c *client) do(deadline time.Time) (status int, err error) {
	if kept := c.take(); kept != nil {
		status, err = c.exchange(kept, deadline)
		if !stale(err) {
			return status, err
		}
	}
	d := net.Dialer{Deadline: deadline}
	fresh, err := d.Dial("tcp", c.addr)
	if err != nil {
		return 0, err
	}
	return c.exchange(&conn{Conn: fresh, r: bufio.NewReaderSize(fresh, 1024)}, deadline)
}

// stale reports whether a kept connection had been closed by the server before the request reached it.
func stale(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

func (c *client) exchange(conn *conn, deadline time.Time) (status int, err error) {
	keep := false
	defer func() {
		if keep {
			c.put(conn)
		} else {
			_ = conn.Close() // nothing more is expected of it
		}
	}()
	if err := conn.SetDeadline(deadline); err != nil {
		return 0, err
	}
	if _, err := conn.Write(c.request); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(conn.r, nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, err
	}
	keep = !resp.Close
	return resp.StatusCode, nil
}

func (c *client) take() *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.idle)
	if n == 0 {
		return nil
	}
	conn := c.idle[n-1]
	c.idle = c.idle[:n-1]
	return conn
}

func (c *client) put(conn *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, conn)
}

// Close closes the connections that are not in use.
func (c *client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.idle {
		_ = conn.Close() // nothing more is expected of it
	}
	c.idle = nil
}

// timedOut reports whether err means that the deadline passed.
func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) || isTimeout(err) }

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}
