package httpgate

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/overload"
	"github.com/spillway-go/spillway/internal/places"
)

// An exchange is one admitted request and its response. It holds the permit, notes the status, and notices when the
// request turns out to be long-lived and leaves the gate. It is never reused, because a handler may keep its writer.
type exchange struct {
	inner    http.ResponseWriter
	m        *Middleware
	r        *http.Request // as the gate got it
	in       *incoming     // the request that the handler gets instead, if it has a body
	permit   spillway.Permit
	route    string             // by Options.Request, or ""
	timeout  time.Duration      // by Options.Request, or 0
	cancel   context.CancelFunc // of the context with the timeout, or nil
	tells    *overload.Reporter // what clients should hold back; nil once they know
	key      string             // whose long-lived request it may become
	blocked  atomic.Int64
	buffered int // bytes that net/http may not have sent yet, for its smallest buffer
	status   int // 0 until the header is written
	held     atomic.Uint32
	claimed  bool // the request is long-lived, according to its client or Options.LongLived
	refused  bool // refused by an inner gate, or by one on the way to another service
}

// An exchange first holds its permit. Once it has left the gate, it holds a place among the long-lived requests. When
// its handler has returned, it holds nothing. A hijacked connection takes over the permit or place until it is closed.
const (
	holdsPermit = iota
	holdsPlace
	holdsNothing
	connHolds
)

func (x *exchange) writeHeader(status int) {
	if status == http.StatusRequestEntityTooLarge && x.status == 0 {
		x.closeOversized()
	}
	// Informational headers do not count. 101 is final, but only HTTP/1 has it.
	switches := status == http.StatusSwitchingProtocols && x.r.ProtoMajor == 1
	if status >= 200 || switches {
		x.commit(status)
	}
	x.inner.WriteHeader(status)
	if switches && x.status == status {
		x.detach()
	}
}

// closeOversized announces on HTTP/1 that the connection closes, as http.MaxBytesReader does if it finds the writer of
// net/http. Otherwise net/http would wait for the rest of the body before it answers.
func (x *exchange) closeOversized() {
	if x.r.ProtoMajor == 1 && x.in != nil && !x.in.body.eof.Load() {
		x.inner.Header()["Connection"] = headerClose
	}
}

// commit notes the status of the response. The first one counts, as in net/http.
func (x *exchange) commit(status int) {
	if x.status == 0 {
		x.status = status
		x.tell()
	}
}

// tell writes into the header what clients should hold back, if this answer is to say it. It is called just before the
// header is sent, because old advice would mislead. A value that comes from further on is removed.
func (x *exchange) tell() {
	if x.tells == nil {
		return
	}
	if report := x.tells.Sometimes(time.Now()); report != nil {
		x.inner.Header()[overload.Header] = report.Value
	} else {
		delete(x.inner.Header(), overload.Header)
	}
	x.tells = nil
}

// flushing notes that a flush sends the header, which proves whether the request is an event stream or a tunnel.
func (x *exchange) flushing() {
	x.commit(http.StatusOK)
	if x.claimed && x.held.Load() == holdsPermit &&
		(isEventStream(x.inner.Header().Get("Content-Type")) || x.status < 300 && isTunnel(x.r)) {
		x.detach()
	}
}

// detach lets the request leave the gate. If there is no room for another long-lived request, or if its handler has
// returned, nothing happens.
func (x *exchange) detach() {
	if x.held.Load() != holdsPermit || x.m.long.Take(x.m.long.holderOf(x.key)) != places.Granted {
		return
	}
	if !x.held.CompareAndSwap(holdsPermit, holdsPlace) { // by a goroutine that outlives the handler
		x.m.long.leave(x.key)
		return
	}
	x.permit.Done(spillway.Ignored)
}

// errH2C refuses to hand over the connection of a request that offers h2c.
var errH2C = errors.New("httpgate: Hijack: refused for h2c: all requests on the connection would pass by the gate; " +
	"put the gate inside h2c.NewHandler")

// hijack takes the connection from hijacker. The permit or place of the exchange stays taken until that connection is
// closed.
func (x *exchange) hijack(hijacker func() (net.Conn, *bufio.ReadWriter, error)) (net.Conn, *bufio.ReadWriter, error) {
	if offersH2C(x.r) {
		return nil, nil, errH2C
	}
	c, rw, err := hijacker()
	if err != nil {
		return c, rw, err
	}
	x.detach()
	h := &hold{m: x.m, key: x.key, place: x.held.Swap(connHolds) == holdsPlace}
	if !h.place {
		h.permit = &x.permit
	}
	return holding(c, h), rw, nil
}

// returned ends the request whose handler has returned.
func (x *exchange) returned() {
	x.restore()
	if !x.held.CompareAndSwap(holdsPermit, holdsNothing) {
		return // end, or the connection, gives back the place
	}
	x.commit(http.StatusOK)
	arrived := x.permit.Arrived()
	elapsed := time.Since(arrived)
	worked := x.worked(elapsed)
	o := x.outcome(elapsed, worked)
	x.permit.DoneAt(arrived.Add(worked), o, 0)
	x.learn(o, worked)
}

// end gives back what the request still holds; it is deferred, so that nothing is left when the handler panics.
func (x *exchange) end() {
	switch x.held.Swap(holdsNothing) {
	case holdsPlace:
		x.restore()
		x.m.long.leave(x.key)
	case holdsPermit:
		x.restore()
		x.permit.Done(x.unwound())
	case holdsNothing: // it has ended, unless Options.Outcome panicked
		x.permit.Done(spillway.Failure)
	case connHolds:
		x.restore()
	}
}
