// Package listen accepts connections within limits, before TLS and before a request is read.
package listen

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Options are the limits of a [Listener]. A limit of 0 is none.
type Options struct {
	MaxConnections int // open at once; more wait in the queue of the kernel
	MaxPerClient   int // per IPv4 address or IPv6 /64; more are closed at once
	MaxUseless     int // requests per second of one client for which Useless is called; with more it is shut out
	// AcceptRate is the rate of new connections; more wait in the queue of the kernel.
	AcceptRate limiter.Rate
	// ProxyProtocol lists the peers whose connections begin with a PROXY header. They must send one.
	ProxyProtocol []netip.Prefix
	// WriteTimeout is how long a single write may take, until Release.
	WriteTimeout time.Duration
	Logger       *slog.Logger // gets one line per second at most; nil is slog.Default
}

// A Listener accepts connections within limits. It is made by [New], safe for concurrent use, and owns a goroutine until Close.
type Listener struct {
	net.Listener
	o       Options
	began   time.Time
	rate    limiter.Limiter // nil is no limit
	seats   chan struct{}   // nil is no limit
	ready   chan net.Conn
	clients clients
	floods  floods
	drained atomic.Bool
	closing context.Context //nolint:containedctx // it is the life of the Listener
	cancel  context.CancelFunc
	once    sync.Once
	err     error // of Accept; set before closing ends
	running sync.WaitGroup
	stats   counters
}

type counters struct{ open, accepted, overClient, badProxy, flooding atomic.Int64 }

// Counts is a snapshot of a [Listener].
type Counts struct {
	Open       int64 // connections now
	Accepted   int64
	OverClient int64 // closed because the client had MaxPerClient
	BadProxy   int64 // closed because the PROXY header was missing or wrong
	Flooding   int64 // closed because the client sent too many useless requests
}

// New returns a Listener in front of inner, which it owns from now on. The error names the invalid field.
func New(inner net.Listener, o Options) (*Listener, error) {
	l := &Listener{Listener: inner, o: o, began: time.Now(), ready: make(chan net.Conn)}
	if o.AcceptRate != (limiter.Rate{}) {
		var err error
		if l.rate, err = limiter.New(limiter.Bucket{Rate: o.AcceptRate}); err != nil {
			return nil, err
		}
	}
	if o.MaxConnections > 0 {
		l.seats = make(chan struct{}, o.MaxConnections)
	}
	if l.o.Logger == nil {
		l.o.Logger = slog.Default()
	}
	l.clients.most, l.floods.most = o.MaxPerClient, o.MaxUseless
	l.closing, l.cancel = context.WithCancel(context.Background())
	l.running.Go(l.run)
	return l, nil
}

// Accept returns the next connection. Its RemoteAddr is that of the client, also behind a PROXY header.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.closing.Done():
		return nil, l.err
	}
}

// Drain closes the inner listener. Connections that wait in the queue of the kernel, or send their PROXY header, are accepted. Accept
// waits for more of them until Close. It must be called once at most.
func (l *Listener) Drain() {
	l.drained.Store(true)
	waiting := endQueue(l.Listener)
	l.Listener.Close()
	for _, c := range waiting {
		if !l.hasSeat() {
			c.Close()
			continue
		}
		l.accept(c)
	}
}

// Close closes the inner listener and waits for the goroutine. Connections that Accept returned stay open.
func (l *Listener) Close() error {
	err := l.Listener.Close()
	l.end(net.ErrClosed)
	l.running.Wait()
	if l.drained.Load() {
		return nil // it was closed before
	}
	return err
}

// Counts returns a snapshot. It may be called at any time.
func (l *Listener) Counts() Counts {
	s := &l.stats
	return Counts{Open: s.open.Load(), Accepted: s.accepted.Load(), OverClient: s.overClient.Load(), BadProxy: s.badProxy.Load(),
		Flooding: s.flooding.Load()}
}

// end makes Accept return err from now on.
func (l *Listener) end(err error) {
	l.once.Do(func() {
		l.err = err
		l.cancel()
	})
}

// mostPause is the longest pause after an error that may go away, such as too many open files.
const mostPause = time.Second

func (l *Listener) run() {
	pause := 5 * time.Millisecond
	for l.room() {
		c, err := l.Listener.Accept()
		if err != nil {
			l.leave()
			if l.drained.Load() {
				return
			}
			if l.closing.Err() != nil || errors.Is(err, net.ErrClosed) {
				l.end(net.ErrClosed)
				return
			}
			l.o.Logger.Warn("spillwayd: a connection could not be accepted", slog.String("error", err.Error()))
			pause = min(2*pause, mostPause)
			select {
			case <-time.After(pause):
			case <-l.closing.Done():
			}
			continue
		}
		pause = 5 * time.Millisecond
		l.accept(c)
	}
}

// accept takes c, which has a seat.
func (l *Listener) accept(c net.Conn) {
	l.stats.accepted.Add(1)
	l.stats.open.Add(1)
	if l.speaksProxy(c.RemoteAddr()) {
		l.running.Go(func() { l.introduce(c) }) // bounded by MaxConnections and by proxyWait
		return
	}
	l.offer(&conn{Conn: c, l: l})
}

// hasSeat takes a seat if there is one.
func (l *Listener) hasSeat() bool {
	if l.seats == nil {
		return true
	}
	select {
	case l.seats <- struct{}{}:
		return true
	default:
		return false
	}
}

// room waits for the rate and for a seat. It reports false when the Listener is closed.
func (l *Listener) room() bool {
	if l.rate != nil && l.rate.Wait(l.closing, 1) != nil && l.closing.Err() != nil {
		return false
	}
	if l.seats == nil {
		return l.closing.Err() == nil
	}
	select {
	case l.seats <- struct{}{}:
		return true
	case <-l.closing.Done():
		return false
	}
}

func (l *Listener) leave() {
	if l.seats != nil {
		<-l.seats
	}
}

// speaksProxy reports whether connections of the peer begin with a PROXY header.
func (l *Listener) speaksProxy(peer net.Addr) bool {
	if len(l.o.ProxyProtocol) == 0 {
		return false
	}
	ip := addrOf(peer)
	for _, p := range l.o.ProxyProtocol {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// introduce reads the PROXY header of c.
func (l *Listener) introduce(c net.Conn) {
	stop := context.AfterFunc(l.closing, func() { c.Close() })
	from, rest, err := readProxy(c)
	stop()
	if err != nil {
		l.stats.badProxy.Add(1)
		(&conn{Conn: c, l: l}).Close()
		return
	}
	l.offer(&conn{Conn: c, l: l, from: from, rest: rest})
}

// offer gives c to Accept, unless its client has too many connections.
func (l *Listener) offer(c *conn) {
	ip := addrOf(c.RemoteAddr())
	if ip.IsValid() && l.floods.most > 0 && l.floods.shuts(time.Now(), network(ip)) {
		l.stats.flooding.Add(1)
		c.Close()
		return
	}
	if ip.IsValid() && l.clients.most > 0 {
		c.client = network(ip)
		if !l.clients.enter(c.client) {
			l.stats.overClient.Add(1)
			c.client = netip.Prefix{}
			c.Close()
			return
		}
	}
	select {
	case l.ready <- c:
	case <-l.closing.Done():
		c.Close()
	}
}

// A conn gives its seat back when it is closed.
type conn struct {
	net.Conn
	l      *Listener
	from   net.Addr // from the PROXY header, or nil
	rest   []byte   // bytes read behind the header
	client netip.Prefix
	closed atomic.Bool
	free   atomic.Bool // it has no WriteTimeout any more
	// renewed is when the deadline of writes was set for the WriteTimeout, in ns of the life of l. It is 0 if another one may hold.
	renewed atomic.Int64
}

// Release takes the WriteTimeout from c, which may be a connection of TLS around one that Accept returned.
func Release(c net.Conn) {
	if c := inner(c); c != nil {
		c.free.Store(true)
		_ = c.SetWriteDeadline(time.Time{})
	}
}

// inner returns the connection that Accept returned, from itself or from one of TLS around it, or nil.
func inner(c net.Conn) *conn {
	if outer, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = outer.NetConn()
	}
	mine, _ := c.(*conn)
	return mine
}

// Write writes to the connection. A deadline is renewed when it has lost a tenth of the WriteTimeout, or a second.
func (c *conn) Write(p []byte) (int, error) {
	if most := c.l.o.WriteTimeout; most > 0 && !c.free.Load() {
		now := time.Since(c.l.began)
		last := time.Duration(c.renewed.Load())
		if last == 0 || now-last > min(most/10, time.Second) {
			_ = c.Conn.SetWriteDeadline(c.l.began.Add(now + most))
			c.renewed.Store(int64(now))
		}
	}
	return c.Conn.Write(p)
}

// SetWriteDeadline sets a deadline that holds until the next write.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.renewed.Store(0)
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline sets both deadlines, that of writes until the next one.
func (c *conn) SetDeadline(t time.Time) error {
	c.renewed.Store(0)
	return c.Conn.SetDeadline(t)
}

// RemoteAddr returns the address of the client.
func (c *conn) RemoteAddr() net.Addr {
	if c.from != nil {
		return c.from
	}
	return c.Conn.RemoteAddr()
}

// Read reads from the connection.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.rest) > 0 {
		n := copy(p, c.rest)
		if c.rest = c.rest[n:]; len(c.rest) == 0 {
			c.rest = nil
		}
		return n, nil
	}
	return c.Conn.Read(p)
}

// Close closes the connection. Only the first call gives the seat back.
func (c *conn) Close() error {
	err := c.Conn.Close()
	if c.closed.CompareAndSwap(false, true) {
		if c.client.IsValid() {
			c.l.clients.leave(c.client)
		}
		c.l.stats.open.Add(-1)
		c.l.leave()
	}
	return err
}

// CloseWrite ends the sending half, where the connection has two.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// clients counts the connections per client.
type clients struct {
	most int
	mu   sync.Mutex
	open map[netip.Prefix]int // without zeros
}

func (c *clients) enter(client netip.Prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[client] >= c.most {
		return false
	}
	if c.open == nil {
		c.open = map[netip.Prefix]int{}
	}
	c.open[client]++
	return true
}

func (c *clients) leave(client netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[client]--; c.open[client] == 0 {
		delete(c.open, client)
	}
}

// network returns the network that counts as one client.
func network(ip netip.Addr) netip.Prefix {
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	p, _ := ip.Prefix(bits) // the length fits
	return p
}

// addrOf returns the IP address of a, or the zero Addr.
func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}
