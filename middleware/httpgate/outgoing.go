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

// An outgoing is the copy that the base RoundTripper gets of a request with a body. Its bodies report when the caller's
// own body fails, has the wrong length, or keeps the server waiting.
type outgoing struct {
	http.Request
	body  sentBody // the body given to RoundTrip; GetBody makes further ones
	fault atomic.Bool
	waits atomic.Int64 // how long bodies kept the server waiting, in nanoseconds
	since atomic.Int64 // when the running Read began, in nanoseconds since start, or 0
	asked atomic.Int64 // when the wait for a 100 that has not come began, in nanoseconds since start, or 0
	start time.Time
}

// outgoing returns the request to send in place of r, or nil if r has no body that can fail or stall.
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

// expectsContinue reports whether the body of r waits for a 100: after a while the RoundTripper sends the body anyway,
// because many servers do not send a 100.
func expectsContinue(r *http.Request) bool {
	return slices.ContainsFunc(r.Header["Expect"], func(v string) bool { return strings.Contains(strings.ToLower(v), "100-continue") })
}

// trace returns a trace that notices the wait for a 100. If no 100 comes, the wait does not count as server time.
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
	o.since.Store(max(int64(began), 1)) // 0 means no Read, and a coarse clock may not advance
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

// faulty reports whether a body failed or had the wrong length. Then even a 500 is not the server's fault.
func (o *outgoing) faulty() bool { return o != nil && o.fault.Load() }

// stalled reports whether the server is still waiting for a body.
func (o *outgoing) stalled() bool { return o != nil && o.since.Load() > 0 }

// waited returns how long the bodies have kept the server waiting, elapsed after the start.
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

// inMemory reports whether body is one of the readers in memory that http.NewRequest knows, with the announced number
// of bytes. net/http sends those together with the header, and they cannot fail or stall.
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

// The two types that io.NopCloser may return. They are never changed.
var (
	nopCloser         = reflect.TypeOf(io.NopCloser(struct{ io.Reader }{})) //nolint:gochecknoglobals // a constant
	nopCloserWriterTo = reflect.TypeOf(io.NopCloser((*bytes.Reader)(nil)))  //nolint:gochecknoglobals // a constant
)

// unsendable reports whether err says that r itself is not valid, so that no server was asked or could have answered.
func unsendable(r *http.Request, err error) bool {
	return r.Header == nil || r.Method != "" && !validToken(r.Method) || !validHeader(r.Header) || !validHeader(r.Trailer) || frames(r.Trailer) ||
		r.ContentLength > 0 && !hasBody(r) || hasControl(r.URL.RequestURI()) || ownErrors(err)
}

// ownErrors reports whether err is an error of net/http about an invalid request. The caller cannot check this before,
// because it depends on the connection: for example, HTTP/2 sends no Upgrade, and no header larger than the server
// accepts.
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

// frames reports whether a trailer field affects how the message before it is read. HTTP does not allow that.
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
