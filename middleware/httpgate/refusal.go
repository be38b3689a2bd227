package httpgate

import (
	"io"
	"net/http"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/overload"
)

// problemType is the media type of the document that [WriteRefusal] writes and [Problem] returns.
const problemType = "application/problem+json"

// The problem documents, after RFC 9457, with the types of the RateLimit header fields draft of the IETF. They reveal
// nothing about the policies inside.
const (
	problemCapacity = `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
		`"title":"Request cannot be satisfied due to temporary server capacity constraints","status":503}` + "\n"
	problemQuota = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429}` + "\n"
)

// statusClientClosedRequest is the status of a call that gRPC ended as cancelled.
const statusClientClosedRequest = 499

// closeAbove is the size of an unread body, in bytes, from which net/http closes the connection rather than read it.
const closeAbove = 256 << 10

// Header values shared by all refusals. Their capacity is their length, so that a later Add by other code copies them.
var (
	headerProblemType = []string{problemType}
	headerNoStore     = []string{"no-store"}
	headerClose       = []string{"close"}
	headerTrue        = []string{"true"}
)

// errUnknown stands for a refusal that is neither a *Rejection nor the end of a context.
var errUnknown = &spillway.Rejection{Policy: "unknown", Reason: "unknown"}

// refuse answers a request that the gate, or the limit of long-lived requests, refused with err. A request whose
// context has ended gets the default answer: its client may be gone, or the service may be going down.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, err error) {
	rej := spillway.RejectionOf(err)
	if rej == nil {
		if r.Context().Err() != nil {
			WriteRefusal(w, r, err)
			return
		}
		rej = errUnknown
	}
	markRefused(w)
	closeUnread(w, r)
	if m.tells != nil {
		w.Header()[overload.Header] = m.tells.Report(time.Now()).Value
	}
	if m.o.TellEnvoy && !rej.OverQuota {
		w.Header()["X-Envoy-Overloaded"] = headerTrue
	}
	m.o.Refuse(w, r, rej)
}

// WriteRefusal answers r, whose permit was refused with err, and does not read its body.
//
// The answer to a [spillway.Rejection] is 429 if it is OverQuota and 503 otherwise, with a Retry-After in whole
// seconds: its RetryAfter rounded up, and up to a quarter more (2 s at least, 6 hours at most), so that clients do not
// come back together. It must not be cached, and its body is a problem document (RFC 9457), except for a HEAD. Any
// other err is answered like a Rejection without details, including the end of the context of r. net/http ends the
// context when the client is gone, but a service that shuts down may end it too, and then the client should learn to go
// elsewhere.
//
// On HTTP/1, net/http reads the rest of the body before it answers. So WriteRefusal closes the connection if the body
// is longer than 256 KiB or of unknown length. A shorter body has 100 ms to arrive; otherwise the connection is closed
// too.
//
// A call of gRPC is answered with the status RESOURCE_EXHAUSTED and a grpc-retry-pushback-ms instead, because its
// client would retry a 503 at once; or with DEADLINE_EXCEEDED if it is TooLate. Other requests that are TooLate are
// answered with 503 rather than 504, because nothing has run, and another server may be faster.
//
// An outer [Middleware] counts the request as [spillway.Ignored], because nothing failed. This requires that w unwraps
// to the writer of that Middleware, as for [http.ResponseController].
//
// WriteRefusal formats nothing, except for waits of more than a day, and allocates nothing beyond net/http. Use it in
// frameworks whose handlers have their own ResponseWriter, and in handlers whose own call was refused by a [Transport].
func WriteRefusal(w http.ResponseWriter, r *http.Request, err error) {
	rej := spillway.RejectionOf(err)
	if rej == nil {
		rej = errUnknown
	}
	markRefused(w)
	closeUnread(w, r)
	if isGRPC(r) {
		refuseGRPC(w, r, rej)
		return
	}
	status, body := problem(rej)
	h := w.Header()
	delete(h, "Content-Length")
	h["Content-Type"] = headerProblemType
	h["Cache-Control"] = headerNoStore
	h["Retry-After"] = retryAfterHeader(rej.RetryAfter)
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, body) // a client that does not read its refusal is not an error
	}
}

// Values of the fields that end a call of gRPC.
var (
	headerDeadlineExceeded  = []string{"4"}
	headerResourceExhausted = []string{"8"}
	headerOverloaded        = []string{"overloaded"}
)

// refuseGRPC answers a call of gRPC like package grpcgate. Its client would turn a 503 into UNAVAILABLE, and may retry
// that at once.
func refuseGRPC(w http.ResponseWriter, r *http.Request, rej *spillway.Rejection) {
	h := w.Header()
	delete(h, "Content-Length")
	h["Content-Type"] = r.Header["Content-Type"]
	h["Grpc-Status"] = headerResourceExhausted
	if rej.TooLate {
		h["Grpc-Status"] = headerDeadlineExceeded
	}
	h["Grpc-Message"] = headerOverloaded
	h["Grpc-Retry-Pushback-Ms"] = []string{retryAfterHeader(rej.RetryAfter)[0] + "000"}
	w.WriteHeader(http.StatusOK)
}

// Problem returns the status and the body that [WriteRefusal] would send for err, and calls set for each header:
// Content-Type, Cache-Control and Retry-After. Use it in frameworks without a ResponseWriter, and for answers in your
// own form.
func Problem(err error, set func(name, value string)) (status int, body string) {
	rej := spillway.RejectionOf(err)
	if rej == nil {
		rej = errUnknown
	}
	set("Content-Type", problemType)
	set("Cache-Control", headerNoStore[0])
	set("Retry-After", retryAfterHeader(rej.RetryAfter)[0])
	return problem(rej)
}

func problem(rej *spillway.Rejection) (status int, body string) {
	if rej.OverQuota {
		return http.StatusTooManyRequests, problemQuota
	}
	return http.StatusServiceUnavailable, problemCapacity
}

// refusalPatience is how long the body of a refused request may take to arrive on HTTP/1, if the connection is to be kept.
const refusalPatience = 100 * time.Millisecond

// closeUnread makes net/http answer r soon although r has an unread body. On HTTP/1, net/http would first wait for up
// to 256 KiB of it. A body too long for that closes the connection; a shorter one gets a deadline. net/http lifts the
// deadline before it reads the next request.
func closeUnread(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 || r.ContentLength == 0 {
		return
	}
	if r.ContentLength < 0 || r.ContentLength > closeAbove ||
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusalPatience)) != nil {
		w.Header()["Connection"] = headerClose
	}
}
