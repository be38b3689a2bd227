package httpgate

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/spillway-go/spillway"
)

// ProblemType is the media type of the document that [WriteRefusal] writes and [Problem] returns.
const ProblemType = "application/problem+json"

// The problem documents, after RFC 9457, with the types of the RateLimit header fields draft of the IETF. They tell
// nothing of the policies inside.
const (
	problemCapacity = `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
		`"title":"Request cannot be satisfied due to temporary server capacity constraints","status":503}` + "\n"
	problemQuota = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429}` + "\n"
)

// statusClientClosedRequest goes into logs only: there is nobody left to read it.
const statusClientClosedRequest = 499

// closeAbove is the size of an unread body, in bytes, from which net/http closes the connection rather than read it.
const closeAbove = 256 << 10

// Header values shared by all refusals. Their capacity is their length, so that an Add by somebody else copies them.
var (
	headerProblemType = []string{ProblemType}
	headerNoStore     = []string{"no-store"}
	headerClose       = []string{"close"}
)

// errUnknown stands for a refusal that is neither a *Rejection nor the end of a context.
var errUnknown = &spillway.Rejection{Policy: "unknown", Reason: "unknown"}

// refuse answers a request that the gate, or the limit of long-lived requests, turned away with err.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, err error) {
	rej := rejection(err)
	if rej == nil {
		if r.Context().Err() != nil {
			WriteRefusal(w, r, err)
			return
		}
		rej = errUnknown
	}
	closeUnread(w, r)
	m.o.Refuse(w, r, rej)
}

// WriteRefusal answers r, whose permit was refused with err, and reads nothing of its body.
//
// The answer to a [spillway.Rejection] is 429 if it is OverQuota and 503 otherwise, with a Retry-After in whole seconds:
// its RetryAfter rounded up, and up to a quarter more (2 s at least, 6 hours at most), so that clients do not come back
// together. It must not be cached, and its body is a problem document (RFC 9457), except for a HEAD. On HTTP/1 the
// connection is closed if the request has a body that is longer than 256 KiB or of unknown length.
//
// If err is the end of the context of r, there is hardly anybody to answer: a client that is gone is logged by whoever
// logs as 499, without a body, and a deadline that has passed is a 503.
//
// WriteRefusal formats nothing, waits of more than a day apart, and allocates only what net/http does. It serves
// frameworks whose handlers have a ResponseWriter of their own.
func WriteRefusal(w http.ResponseWriter, r *http.Request, err error) {
	rej := rejection(err)
	if rej == nil {
		if errors.Is(err, context.Canceled) {
			w.WriteHeader(statusClientClosedRequest)
			return
		}
		rej = errUnknown
	}
	closeUnread(w, r)
	status, body := problem(rej)
	h := w.Header()
	delete(h, "Content-Length")
	h["Content-Type"] = headerProblemType
	h["Cache-Control"] = headerNoStore
	h["Retry-After"] = retryAfterHeader(rej.RetryAfter)
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, body) // a client that does not want its refusal is no error
	}
}

// Problem returns what [WriteRefusal] answers to err, the status and the body, and calls set for each header: Content-Type,
// Cache-Control and Retry-After. It serves frameworks without a ResponseWriter, and answers in a form of their own.
func Problem(err error, set func(name, value string)) (status int, body string) {
	rej := rejection(err)
	if rej == nil {
		rej = errUnknown
	}
	set("Content-Type", ProblemType)
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

// rejection returns the Rejection in err, or nil.
func rejection(err error) *spillway.Rejection {
	if rej, ok := err.(*spillway.Rejection); ok { //nolint:errorlint // the common case at the price of a comparison
		return rej
	}
	var rej *spillway.Rejection
	errors.As(err, &rej)
	return rej
}

// closeUnread announces on HTTP/1 that the connection closes, if the body of r is too long to be read for its sake. Else
// net/http would read up to 256 KiB of it before it answers.
func closeUnread(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 && (r.ContentLength < 0 || r.ContentLength > closeAbove) {
		w.Header()["Connection"] = headerClose
	}
}
