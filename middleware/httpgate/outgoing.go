package httpgate

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// An outgoing is the request that the base RoundTripper gets in place of one that has a body: a copy, whose bodies tell
// when the caller's own body fails, ends early or late, or keeps the server waiting.
type outgoing struct {
	http.Request
	body  sentBody // as RoundTrip got it; GetBody makes others
	fault atomic.Bool
	waits atomic.Int64 // for how long bodies kept the server waiting, in nanoseconds
	since atomic.Int64 // when the Read that is running began, in nanoseconds since start, or 0
	asked atomic.Int64 // when the wait for a 100 that has not come began, in nanoseconds since start, or 0
	start time.Time
}

// outgoing returns what is sent in place of r, or nil if r has no body that can fail or stall.
func newOutgoing(r *http.Request, start time.Time) *outgoing {
	if !hasBody(r) {
		return nil
	}
	expects := expectsContinue(r)
	if !expects && inMemory(r.Body, r.ContentLength) {
		return nil
	}
	out := &outgoing{Request: *r, start: start}
	if expects {
		out.Request = *r.WithContext(httptrace.WithClientTrace(r.Context(), out.trace()))
	}
	out.body = sentBody{ReadCloser: r.Body, out: out}
	out.Body = &out.body
	if get := r.GetBody; get != nil {
		out.GetBody = func() (io.ReadCloser, error) {
			b, err := get()
			if err != nil {
				out.fault.Store(true)
				return nil, err
			}
			return &sentBody{ReadCloser: b, out: out}, nil
		}
	}
	return out
}

// expectsContinue reports whether the body of r waits for a 100: the RoundTripper sends it after a while without one, since
// many servers know no 100.
func expectsContinue(r *http.Request) bool {
	return slices.ContainsFunc(r.Header["Expect"], func(v string) bool { return strings.Contains(strings.ToLower(v), "100-continue") })
}

// trace returns what notices the wait for a 100. A wait in vain is that of the request, not of the server.
func (o *outgoing) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		Wait100Continue: func() { o.asked.Store(max(int64(time.Since(o.start)), 1)) },
		Got100Continue:  func() { o.asked.Store(0) },
	}
}

// A sentBody is a body of an outgoing.
type sentBody struct {
	io.ReadCloser
	out    *outgoing
	sent   int64
	closed atomic.Bool
}

func (b *sentBody) Read(p []byte) (int, error) {
	o := b.out
	began := time.Since(o.start)
	if asked := o.asked.Swap(0); asked > 0 {
		o.waits.Add(int64(began) - asked)
	}
	o.since.Store(max(int64(began), 1)) // 0 is for no Read, and a coarse clock may stand still
	n, err := b.ReadCloser.Read(p)
	o.since.Store(0)
	o.waits.Add(int64(time.Since(o.start) - began))
	b.sent += int64(n)
	announced := o.ContentLength
	switch {
	case announced > 0 && (b.sent > announced || errors.Is(err, io.EOF) && b.sent < announced):
		o.fault.Store(true)
	case err == nil, errors.Is(err, io.EOF):
	case !b.closed.Load(): // by the RoundTripper, when it needs no more
		o.fault.Store(true)
	}
	return n, err //nolint:wrapcheck // a body adds nothing to an error
}

func (b *sentBody) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close() //nolint:wrapcheck // as above
}

// faulty reports whether a body failed, or had another length than announced: then an answer of 500 is no surprise either.
func (o *outgoing) faulty() bool { return o != nil && o.fault.Load() }

// stalled reports whether the server is still waiting for a body.
func (o *outgoing) stalled() bool { return o != nil && o.since.Load() > 0 }

// waited returns for how long the bodies have kept the server waiting, elapsed after the start.
func (o *outgoing) waited(elapsed time.Duration) time.Duration {
	if o == nil {
		return 0
	}
	waited := time.Duration(o.waits.Load())
	if since := time.Duration(o.since.Load()); since > 0 {
		waited += max(elapsed-since, 0)
	}
	return waited
}

// inMemory reports whether body is one of the readers in memory that http.NewRequest knows, with as many bytes as
// announced: net/http sends those in one go with the header, and they neither fail nor stall.
func inMemory(body io.ReadCloser, announced int64) bool {
	t := reflect.TypeOf(body)
	if t != nopCloser && t != nopCloserWriterTo {
		return false
	}
	switch r := reflect.ValueOf(body).Field(0).Interface().(type) {
	case *bytes.Reader:
		return int64(r.Len()) == announced
	case *bytes.Buffer:
		return int64(r.Len()) == announced
	case *strings.Reader:
		return int64(r.Len()) == announced
	}
	return false
}

// The two types of which io.NopCloser returns one. They are never changed.
var (
	nopCloser         = reflect.TypeOf(io.NopCloser(struct{ io.Reader }{})) //nolint:gochecknoglobals // a constant
	nopCloserWriterTo = reflect.TypeOf(io.NopCloser((*bytes.Reader)(nil)))  //nolint:gochecknoglobals // a constant
)

// unsendable reports whether the error err of r is about r itself, which is not valid: nobody was asked, or nobody could
// have answered.
func unsendable(r *http.Request, err error) bool {
	return r.Header == nil || r.Method != "" && !validToken(r.Method) || !validHeader(r.Header) || !validHeader(r.Trailer) || frames(r.Trailer) ||
		r.ContentLength > 0 && !hasBody(r) || hasControl(r.URL.RequestURI()) || ownErrors(err)
}

// ownErrors reports whether net/http says by err that a request is not valid. It has no other way to tell of what depends on
// the connection: HTTP/2 sends no Upgrade, for example, and no larger header than the server has announced to accept.
func ownErrors(err error) bool {
	text := err.Error()
	for _, own := range []string{
		"http2: invalid ", "http2: request header list larger", "http2: request body larger", "http: invalid Host header",
		"http: ContentLength=", "http: Request.ContentLength=", "unsupported protocol scheme ", "idna: ", "invalid Trailer key ",
	} {
		if strings.HasPrefix(text, own) || strings.Contains(text, ": "+own) {
			return true
		}
	}
	return false
}

func validHeader(h http.Header) bool {
	for name, values := range h {
		if !validToken(name) && name != ":protocol" {
			return false
		}
		if slices.ContainsFunc(values, hasControl) {
			return false
		}
	}
	return true
}

// frames reports whether a trailer says how to read what is in front of it. HTTP does not allow that.
func frames(trailer http.Header) bool {
	for name := range trailer {
		switch http.CanonicalHeaderKey(name) {
		case "Content-Length", "Trailer", "Transfer-Encoding":
			return true
		}
	}
	return false
}

// hasControl reports whether s has a control character other than a tab.
func hasControl(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return true
		}
	}
	return false
}
