package httpgate

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/spillway-go/spillway"
)

// An exchange is one admitted request and its response. It holds the permit, notes the status, and notices when the
// request turns out to be long-lived and leaves the gate. It is never reused, because a handler may keep its writer.
type exchange struct {
	inner    http.ResponseWriter
	m        *Middleware
	permit   spillway.Permit
	route    string // whose latency it tells, or ""
	status   int    // 0 until the header is written
	claimed  bool   // by its client or by Options.LongLived, the request is long-lived
	detached bool   // it has left the gate
	finished bool   // its handler has returned
}

func (x *exchange) writeHeader(status int) {
	// What comes before the final header says nothing; 101 is final.
	if status >= 200 || status == http.StatusSwitchingProtocols {
		x.commit(status)
	}
	x.inner.WriteHeader(status)
	if status == http.StatusSwitchingProtocols && x.status == status {
		x.detach()
	}
}

// commit notes the status of the response: the first wins, as it does in net/http.
func (x *exchange) commit(status int) {
	if x.status == 0 {
		x.status = status
	}
}

// flushing notes that a flush sends the header, and with it the proof that a request is an event stream.
func (x *exchange) flushing() {
	x.commit(http.StatusOK)
	if x.claimed && !x.detached && isEventStream(x.inner.Header().Get("Content-Type")) {
		x.detach()
	}
}

func (x *exchange) hijacked(c net.Conn, rw *bufio.ReadWriter, err error) (net.Conn, *bufio.ReadWriter, error) {
	if err == nil {
		x.detach()
	}
	return c, rw, err
}

// detach lets the request leave the gate. If there is no room for another long-lived request, it stays in flight.
func (x *exchange) detach() {
	if x.detached || !x.m.long.enter() {
		return
	}
	x.detached = true
	x.permit.Done(spillway.Ignored)
}

// returned ends the request whose handler has returned.
func (x *exchange) returned(r *http.Request) {
	if !x.detached {
		x.commit(http.StatusOK)
		status := meantStatus(x.inner, r, x.status)
		x.m.late.done(x.route, r, &x.permit, x.m.o.Outcome(r, status))
	}
	x.finished = true
}

// end gives back what the request still holds; it is deferred, so that nothing is left when the handler panics.
func (x *exchange) end(r *http.Request) {
	if x.detached {
		x.m.long.leave()
		return
	}
	if x.finished {
		return
	}
	if errors.Is(r.Context().Err(), context.Canceled) {
		x.permit.Done(spillway.Ignored)
		return
	}
	x.permit.Done(spillway.Failure)
}
