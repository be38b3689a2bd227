package redistest

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// A Proxy is a network that can fail, in front of a server. It starts without faults. Methods may be called concurrently, and
// also apply to open connections.
type Proxy struct {
	listener net.Listener
	done     chan struct{}
	running  sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed when faults change
	faults  faults
	conns   map[net.Conn]struct{}
}

// faults are the faults of the network.
type faults struct {
	target  string
	latency time.Duration
	hole    bool
	refuse  bool
	loss    float64
}

// NewProxy starts a proxy on a free port that leads to the server at target, and closes it when the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	p := &Proxy{
		listener: l, done: make(chan struct{}), changed: make(chan struct{}),
		faults: faults{target: target}, conns: map[net.Conn]struct{}{},
	}
	p.running.Go(p.serve)
	t.Cleanup(p.close)
	return p
}

// Addr returns the address that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetTarget leads new connections to another server. Reset ends the old ones.
func (p *Proxy) SetTarget(addr string) { p.set(func(f *faults) { f.target = addr }) }

// SetLatency delays every reply by d.
func (p *Proxy) SetLatency(d time.Duration) { p.set(func(f *faults) { f.latency = d }) }

// BlackHole lets nothing through in either direction while on, and closes nothing. Delayed bytes arrive afterwards.
func (p *Proxy) BlackHole(on bool) { p.set(func(f *faults) { f.hole = on }) }

// Refuse closes new connections at once while on, as a port without a listener does.
func (p *Proxy) Refuse(on bool) { p.set(func(f *faults) { f.refuse = on }) }

// DropReplies loses a fraction of the replies, 0..1: the server has run the command, and the client gets no reply. A
// connection that has lost a reply stays mute, since a later reply would be taken for the lost one. On a connection
// that opens meanwhile, the lost reply may be the greeting, and then no request is sent.
func (p *Proxy) DropReplies(fraction float64) { p.set(func(f *faults) { f.loss = fraction }) }

// Heal ends all faults.
func (p *Proxy) Heal() { p.set(func(f *faults) { *f = faults{target: f.target} }) }

// Reset closes all open connections the hard way: both sides see "connection reset by peer".
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns { // all at once, because the end of one side closes the other
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	}
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *Proxy) set(change func(*faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.faults)
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) now() (faults, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults, p.changed
}

func (p *Proxy) close() {
	close(p.done)
	_ = p.listener.Close()
	p.Reset()
	p.running.Wait()
}

func (p *Proxy) serve() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		f, _ := p.now()
		if f.refuse {
			_ = c.Close()
			continue
		}
		p.running.Go(func() { p.connect(c, f.target) })
	}
}

// connect joins a client to the server until one of them ends.
func (p *Proxy) connect(client net.Conn, target string) {
	defer client.Close()
	dial := net.Dialer{Timeout: time.Second}
	server, err := dial.DialContext(context.Background(), "tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.enter(client, server) {
		return
	}
	defer p.leave(client, server)
	var both sync.WaitGroup
	both.Go(func() { p.pump(client, server, false) })
	both.Go(func() { p.pump(server, client, true) })
	both.Wait()
}

// enter lists the connections for Reset, unless the proxy closes.
func (p *Proxy) enter(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		return false
	default:
	}
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return true
}

func (p *Proxy) leave(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

// A parcel is bytes that leave the proxy at a time.
type parcel struct {
	data []byte
	due  time.Time
}

// pump carries bytes from one side to the other, and then ends both.
func (p *Proxy) pump(from, to net.Conn, replies bool) {
	parcels := make(chan parcel, 1024)
	var carrier sync.WaitGroup
	carrier.Go(func() { p.deliver(parcels, to, replies) })
	for {
		buf := make([]byte, 16<<10)
		n, err := from.Read(buf)
		if err != nil {
			break
		}
		f, _ := p.now()
		out := parcel{data: buf[:n]}
		if replies {
			out.due = time.Now().Add(f.latency)
		}
		select {
		case parcels <- out:
		case <-p.done:
		}
	}
	close(parcels)
	carrier.Wait()
	_ = to.Close()
	_ = from.Close()
}

// deliver writes each parcel when it is due and the network lets it through.
func (p *Proxy) deliver(parcels <-chan parcel, to net.Conn, replies bool) {
	mute := false
	for out := range parcels {
		p.hold(out.due)
		f, _ := p.now()
		mute = mute || replies && f.loss > 0 && rand.Float64() < f.loss
		if mute {
			continue
		}
		if _, err := to.Write(out.data); err != nil {
			mute = true
		}
	}
}

// hold returns when the time has come and there is no black hole, or at the end of the proxy.
func (p *Proxy) hold(due time.Time) {
	if d := time.Until(due); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.done:
		}
	}
	for {
		f, changed := p.now()
		if !f.hole {
			return
		}
		select {
		case <-changed:
		case <-p.done:
			return
		}
	}
}
