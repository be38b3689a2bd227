package httpgate

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
)

// An exchange is one admitted request and its response. It holds the permit, notes the status, and notices when the
// request turns out to be long-lived and leaves the gate. It is never reused, because a handler may keep its writer.
type exchange struct {
	inner    http.ResponseWriter
	m        *Middleware
	r        *http.Request // as the gate got it
	in       *incoming     // what the handler gets instead, if the request has a body
	permit   spillway.Permit
	route    string // by Options.Deadline, or ""
	key      string // whose long-lived request it may become
	blocked  atomic.Int64
	buffered int // bytes that net/http has not sent yet, by its smallest buffer
	status   int // 0 until the header is written
	held     atomic.Uint32
	claimed  bool // by its client or by Options.LongLived, the request is long-lived
	refused  bool // by a gate further in, or on the way to another service
}

// What an exchange holds: its permit at first; a place among the long-lived requests once it has left the gate; nothing
// when its handler has returned. A hijacked connection takes over what there is, until it is closed.
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
	// A header before the final one says nothing. 101 is final, but only HTTP/1 has it.
	switches := status == http.StatusSwitchingProtocols && x.r.ProtoMajor == 1
	if status >= 200 || switches {
		x.commit(status)
	}
	x.inner.WriteHeader(status)
	if switches && x.status == status {
		x.detach()
	}
}

// closeOversized announces on HTTP/1 that the connection closes, as http.MaxBytesReader does where it finds the writer of
// net/http. Else net/http would wait for the rest of the body before it answers.
func (x *exchange) closeOversized() {
	if x.r.ProtoMajor == 1 && x.in != nil && !x.in.body.eof.Load() {
		x.inner.Header()["Connection"] = headerClose
	}
}

// commit notes the status of the response: the first wins, as it does in net/http.
func (x *exchange) commit(status int) {
	if x.status == 0 {
		x.status = status
	}
}

// flushing notes that a flush sends the header, and with it the proof that a request is an event stream or a tunnel.
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
	if x.held.Load() != holdsPermit || !x.m.long.enter(x.key) {
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

// hijack takes the connection from hijacker. What the exchange holds stays taken until that connection is closed.
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
		return // what it holds instead is given back by end, or by the connection
	}
	x.commit(http.StatusOK)
	arrived := x.permit.Arrived()
	elapsed := time.Since(arrived)
	worked := x.worked(elapsed)
	o := x.outcome(elapsed, worked)
	x.permit.DoneAt(arrived.Add(worked), o, 0)
	x.learn(o, elapsed, worked)
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
