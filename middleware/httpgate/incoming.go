package httpgate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// An incoming is the copy that a handler gets of a request with a body. Its body tells the exchange when the client
// sent unreadable data or kept the handler waiting. The original request keeps its own body, because net/http uses the
// type of that body to decide whether to keep the connection.
type incoming struct {
	http.Request
	body requestBody
}

// hasBody reports whether r has a body to be read.
func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// take returns the request that the handler gets in place of x.r: with a body that is watched, and with a context that
// ends after the timeout, if there is one. The caller cancels that context.
func (x *exchange) take() *http.Request {
	if !hasBody(x.r) && x.timeout <= 0 {
		return x.r
	}
	x.in = &incoming{Request: *x.r}
	if x.timeout > 0 {
		ctx, cancel := context.WithDeadline(x.r.Context(), x.permit.Arrived().Add(x.timeout))
		x.in.Request, x.cancel = *x.r.WithContext(ctx), cancel
	}
	x.in.body = requestBody{ReadCloser: x.r.Body, x: x}
	if hasBody(x.r) {
		x.in.Body = &x.in.body
	} else {
		x.in.body.eof.Store(true)
	}
	return &x.in.Request
}

// limited returns the request whose context ends after the timeout, if there is one, and otherwise x.r.
func (x *exchange) limited() *http.Request {
	if x.cancel != nil {
		return &x.in.Request
	}
	return x.r
}

// restore copies the pattern and the form from the inner request to the request outside the gate. The server removes
// the files of the form.
func (x *exchange) restore() {
	if x.in == nil {
		return
	}
	in := &x.in.Request
	if in.Pattern != x.r.Pattern {
		if x.in.body.reads.TryLock() { // the pattern comes with the values of its wildcards
			defer x.in.body.reads.Unlock()
			body := x.r.Body
			if x.cancel != nil {
				in = in.WithContext(x.r.Context())
			}
			*x.r = *in
			x.r.Body = body
			return
		}
		x.r.Pattern = in.Pattern
	}
	if in.Form != nil {
		x.r.Form = in.Form
	}
	if in.PostForm != nil {
		x.r.PostForm = in.PostForm
	}
	if in.MultipartForm != nil {
		x.r.MultipartForm = in.MultipartForm
	}
}

// A requestBody is the body of an incoming.
type requestBody struct {
	io.ReadCloser
	x     *exchange
	reads sync.Mutex   // held by the running Read, which may set both Trailers; it may outlive the handler
	fault atomic.Bool  // reading it failed
	cut   atomic.Bool  // it was read after it had been closed, by the handler or by net/http
	eof   atomic.Bool  // it was read to the end
	since atomic.Int64 // when the running Read began, in nanoseconds since the request arrived, or 0
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.reads.Lock()
	defer b.reads.Unlock()
	arrived := b.x.permit.Arrived()
	began := time.Since(arrived)
	b.since.Store(max(int64(began), 1)) // 0 means no Read, and a coarse clock may not advance
	n, err := b.ReadCloser.Read(p)
	b.since.Store(0)
	b.x.blocked.Add(int64(time.Since(arrived) - began))
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		b.eof.Store(true)
		b.x.in.Trailer = b.x.r.Trailer // servers of HTTP/1 and HTTP/3 set it with the end of the body
	case errors.Is(err, http.ErrBodyReadAfterClose):
		b.cut.Store(true)
	default:
		b.fault.Store(true)
	}
	return n, err //nolint:wrapcheck // a body adds nothing to an error
}

// faulty reports whether the client sent a body that cannot be read.
func (x *exchange) faulty() bool { return x.in != nil && x.in.body.fault.Load() }

// cutOff reports whether the rest of the body was lost because the client had not sent it when the answer began: on
// HTTP/1, net/http then reads and drops it. A reverse proxy breaks off its answer if it was still sending that body.
func (x *exchange) cutOff() bool { return x.in != nil && x.status != 0 && x.in.body.cut.Load() }

// worked returns elapsed minus the time that the client kept the request waiting.
func (x *exchange) worked(elapsed time.Duration) time.Duration {
	blocked := time.Duration(x.blocked.Load())
	if x.in != nil {
		if since := time.Duration(x.in.body.since.Load()); since > 0 { // a goroutine that the handler did not wait for is reading
			blocked += elapsed - since
		}
	}
	return max(elapsed-blocked, 0)
}
