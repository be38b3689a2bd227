package httpgate

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/deadline"
)

// outcome returns the outcome of a request whose handler has returned after elapsed. worked is elapsed without waits
// for the client.
func (x *exchange) outcome(elapsed, worked time.Duration) spillway.Outcome {
	r := x.r
	status := meantStatus(x.inner, r, x.status)
	o := x.m.o.Outcome(x.limited(), status)
	switch {
	case x.refused, x.faulty(), badMessage(x.inner, r, status):
		return spillway.Ignored
	case (o == spillway.Failure || o == spillway.Dropped) && x.hurried(elapsed, worked):
		return spillway.Ignored
	}
	return o
}

// hurried reports whether the request has missed a deadline that left it too little time.
func (x *exchange) hurried(elapsed, worked time.Duration) bool {
	given := x.given()
	if given == deadline.None || elapsed < given && !errors.Is(x.r.Context().Err(), context.DeadlineExceeded) {
		return false
	}
	return !x.m.chance.Fair(x.kind(), given-(elapsed-worked))
}

// given returns how much time the request had, by its context and the timeout that its client sent, or [deadline.None].
func (x *exchange) given() time.Duration {
	given := deadline.None
	if by, ok := x.r.Context().Deadline(); ok {
		given = by.Sub(x.permit.Arrived())
	}
	wait := x.timeout
	if wait <= 0 {
		wait = protocolTimeout(x.r)
	}
	if wait > 0 {
		given = min(given, wait)
	}
	return given
}

// kind returns a name for requests that take about as long as this one: the route if there is one, the method of gRPC,
// or the pattern by which an inner ServeMux has found the handler.
func (x *exchange) kind() string {
	switch {
	case x.route != "":
		return x.route
	case x.r.Method == http.MethodConnect: // a ServeMux makes a pattern of its target
		return ""
	case isGRPC(x.r) && saysGRPC(x.inner.Header()): // only if the handler says so too, because the client chooses the path
		return x.r.URL.Path
	}
	return x.r.Pattern
}

// learn records how long a request took whose handler has returned.
func (x *exchange) learn(o spillway.Outcome, worked time.Duration) {
	if o == spillway.Success && x.status < 300 { // the latency of a redirect says little about its target
		x.m.chance.Observe(x.kind(), worked, x.given())
	}
}

// unwound returns the outcome of a request whose handler panicked or exited its goroutine.
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

// offersH2C reports whether r begins HTTP/2 in clear text. After that, all requests on the connection would bypass a
// gate outside h2c.NewHandler.
func offersH2C(r *http.Request) bool {
	return isH2CPreface(r) || len(r.Header["Upgrade"]) > 0 && strings.EqualFold(r.Header["Upgrade"][0], "h2c")
}

// isH2CPreface reports whether r is the preface of HTTP/2, which net/http passes on as a request.
func isH2CPreface(r *http.Request) bool { return r.ProtoMajor == 2 && r.Method == "PRI" }
