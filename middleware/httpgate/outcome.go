package httpgate

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-go/spillway"
)

// outcome returns how the request went whose handler has returned after elapsed, for worked of which its client did not keep
// it waiting.
func (x *exchange) outcome(elapsed, worked time.Duration) spillway.Outcome {
	r := x.r
	status := meantStatus(x.inner, r, x.status)
	o := x.m.o.Outcome(r, status)
	switch {
	case x.refused, x.faulty():
		return spillway.Ignored
	case (o == spillway.Failure || o == spillway.Dropped) && x.hurried(elapsed, worked):
		return spillway.Ignored
	}
	return o
}

// hurried reports whether the request has missed a deadline that left it too little time.
func (x *exchange) hurried(elapsed, worked time.Duration) bool {
	given, ok := x.given()
	if !ok || elapsed < given && !errors.Is(x.r.Context().Err(), context.DeadlineExceeded) {
		return false
	}
	return !x.m.chance.Fair(x.kind(), given-(elapsed-worked))
}

// given returns how much time the request had, by its context and by the word of its client, and whether it was limited.
func (x *exchange) given() (given time.Duration, ok bool) {
	by, ok := x.r.Context().Deadline()
	if ok {
		given = by.Sub(x.permit.Arrived())
	}
	if wait := x.m.clientTimeout(x.r); wait > 0 && (!ok || wait < given) {
		return wait, true
	}
	return given, ok
}

// clientTimeout returns how long the client of r waits by its own word, or 0.
func (m *Middleware) clientTimeout(r *http.Request) time.Duration {
	if m.late != nil && m.late.Timeout != nil {
		return min(m.late.Timeout(r), maxTimeout)
	}
	if values := r.Header["Grpc-Timeout"]; len(values) > 0 && isGRPC(r) {
		return timeout(values[0], 0)
	}
	if values := r.Header["Connect-Timeout-Ms"]; len(values) > 0 {
		return timeout(values[0], time.Millisecond)
	}
	return 0
}

// kind returns a name for the requests that take about as long as this one: the route if there is one, the method of gRPC, or
// the pattern by which a ServeMux further in has found the handler.
func (x *exchange) kind() string {
	switch {
	case x.route != "":
		return x.route
	case x.r.Method == http.MethodConnect: // a ServeMux makes a pattern of its target
		return ""
	case isGRPC(x.r) && saysGRPC(x.inner.Header()): // by the word of the handler too, since the path is the client's
		return x.r.URL.Path
	}
	return x.r.Pattern
}

// learn learns how long the request took, whose handler has returned after elapsed.
func (x *exchange) learn(o spillway.Outcome, elapsed, worked time.Duration) {
	if o == spillway.Success && x.status < 300 { // a redirect says little about what it leads to
		x.m.chance.Observe(x.kind(), worked)
	}
	if x.route != "" {
		x.m.late.learn(x.route, x.r, o, x.permit.Arrived().Add(elapsed), worked)
	}
}

// unwound returns how a request went whose handler panicked or exited its goroutine.
func (x *exchange) unwound() spillway.Outcome {
	if x.refused || x.faulty() || x.cutOff() || errors.Is(x.r.Context().Err(), context.Canceled) {
		return spillway.Ignored
	}
	elapsed := time.Since(x.permit.Arrived())
	if x.hurried(elapsed, x.worked(elapsed)) {
		return spillway.Ignored
	}
	return spillway.Failure
}

// isGRPC reports whether r is a call of gRPC.
func isGRPC(r *http.Request) bool {
	return r.Method == http.MethodPost && saysGRPC(r.Header)
}

// saysGRPC reports whether h is the header of a message of gRPC.
func saysGRPC(h http.Header) bool {
	mediaType := h["Content-Type"]
	return len(mediaType) > 0 && strings.HasPrefix(mediaType[0], "application/grpc")
}

// offersH2C reports whether r begins HTTP/2 in clear text, with which all that follows on the connection passes by a gate
// that stands outside of h2c.NewHandler.
func offersH2C(r *http.Request) bool {
	return isH2CPreface(r) || len(r.Header["Upgrade"]) > 0 && strings.EqualFold(r.Header["Upgrade"][0], "h2c")
}

// isH2CPreface reports whether r is the preface of HTTP/2, which net/http passes on as a request.
func isH2CPreface(r *http.Request) bool { return r.ProtoMajor == 2 && r.Method == "PRI" }
