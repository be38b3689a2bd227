package httpgate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/deadline"
	"github.com/spillway-go/spillway/internal/overload"
)

// A call is one request of a client from its admission to the end of its response.
type call struct {
	t       *Transport
	r       *http.Request
	permit  spillway.Permit
	route   string         // what takes about as long
	host    *overload.Host // nil if the Transport does not listen to the server
	level   spillway.Priority
	out     *outgoing        // what was sent instead of r, or nil
	outcome spillway.Outcome // by the header of the response
	wish    time.Duration    // delay that the server asked for
	header  time.Duration    // how long the server took for the header, or 0
	took    atomic.Int64     // server time for the part of the body that was read, in nanoseconds
	teaches bool             // the latency counts for the route: the call was answered with 2xx
	handed  bool             // to the body of the response, which ends the call
	reading atomic.Bool      // the body is being read, and will notice the end of the context itself
	ended   atomic.Bool
}

// patience is how long a caller may keep a server waiting, by a stalled request body or an unread response, before a
// broken exchange counts as the caller's fault. No server waits for less.
const patience = time.Second

// answered handles the result of the base RoundTripper. It ends the call, or passes it on to the body of the response.
func (c *call) answered(res *http.Response, err error) {
	elapsed := c.elapsed()
	c.header = max(elapsed-c.out.waited(elapsed), 1)
	c.outcome = c.judge(res, err)
	c.teaches = res != nil && res.StatusCode/100 == 2
	if res != nil && c.outcome == spillway.Dropped {
		c.wish = RetryAfter(res.Header, time.Now())
	}
	if res != nil && c.host != nil {
		c.listen(res)
	}
	if err != nil || res == nil || c.t.o.AtHeader || !endsWithBody(res) {
		c.end(c.outcome)
		return
	}
	b := &body{call: c, res: res, inner: res.Body}
	b.cleanup = runtime.AddCleanup(b, (*call).forgotten, c)
	b.stop = context.AfterFunc(c.r.Context(), c.contextEnded)
	res.Body = b
	c.handed = true
}

// endsWithBody reports whether the end of the body is the end of the exchange.
func endsWithBody(res *http.Response) bool {
	if res.Body == nil || res.Body == http.NoBody || isEventStream(res.Header.Get("Content-Type")) {
		return false
	}
	_, writable := res.Body.(io.Writer)
	return !writable
}

// elapsed returns the time since the call was admitted.
func (c *call) elapsed() time.Duration { return time.Since(c.permit.Arrived()) }

// worked returns how long the server took: until the header, plus all waits of the caller for more of the body.
func (c *call) worked() time.Duration {
	if c.header == 0 { // the RoundTripper panicked
		return c.elapsed()
	}
	return c.header + time.Duration(c.took.Load())
}

// judge returns the outcome of the call, which has a response, an error, or an error in the body of a response.
func (c *call) judge(res *http.Response, err error) spillway.Outcome {
	if c.out.faulty() || err != nil && c.ownFault(res, err) {
		return spillway.Ignored
	}
	return c.t.o.Outcome(c.r, res, err)
}

// ownFault reports whether err was caused by the caller, or by the deadline that it chose.
func (c *call) ownFault(res *http.Response, err error) bool {
	if res == nil && unsendable(c.r, err) {
		return true
	}
	own := c.elapsed() - c.worked()
	if own >= patience {
		return true
	}
	if !deadlinePassed(c.r) {
		return false
	}
	if c.out.stalled() {
		return true
	}
	given := c.given()
	return given != deadline.None && !c.t.chance.Fair(c.route, given-own)
}

// given returns how much time the call had, or [deadline.None].
func (c *call) given() time.Duration {
	if by, ok := c.r.Context().Deadline(); ok {
		return by.Sub(c.permit.Arrived())
	}
	return deadline.None
}

// end ends the call and reports whether it had not ended before.
func (c *call) end(o spillway.Outcome) bool {
	if !c.ended.CompareAndSwap(false, true) {
		return false
	}
	if worked := c.worked(); c.wish > 0 {
		c.permit.DoneAt(time.Time{}, o, c.wish)
	} else {
		c.permit.DoneAt(c.permit.Arrived().Add(worked), o, 0)
		if o == spillway.Success && c.teaches {
			c.t.chance.Observe(c.route, worked, c.given())
		}
	}
	if c.t.o.Budget != nil {
		c.t.o.Budget.Record(o)
	}
	return true
}

// unwind ends a call whose RoundTripper panicked or exited the goroutine.
func (c *call) unwind() {
	if !c.handed {
		c.end(spillway.Failure)
	}
}

// broken ends a call whose body broke off. An error status in the header still counts against the server.
func (c *call) broken(res *http.Response, err error) {
	defer c.end(spillway.Failure) // if Outcome panics
	o := c.outcome
	if o == spillway.Success {
		o = c.judge(res, err)
	}
	c.end(o)
}

// contextEnded ends a call whose response has no reader when its context ends: its caller has given up.
func (c *call) contextEnded() {
	if c.reading.Load() {
		return
	}
	o := c.outcome
	if o == spillway.Success {
		o = spillway.Ignored
	}
	c.end(o)
}

// forgotten ends a call whose response was never closed, when the garbage collector finds it.
func (c *call) forgotten() {
	if c.end(c.outcome) {
		c.t.leaked.Add(1)
	}
}

// A body is the body of a response. When it ends, it ends its call.
type body struct {
	call    *call // must not refer to the body, because the body would then never be garbage
	res     *http.Response
	inner   io.ReadCloser
	stop    func() bool
	cleanup runtime.Cleanup
}

func (b *body) Read(p []byte) (int, error) {
	if b.call.r.Context().Err() != nil { // before the caller read on
		b.call.contextEnded()
	}
	began := b.call.elapsed()
	b.call.reading.Store(true)
	n, err := b.inner.Read(p)
	b.call.took.Add(int64(b.call.elapsed() - began))
	if err == nil {
		b.call.reading.Store(false) // after an error, this Read alone ends the call
	} else {
		b.release()
		if errors.Is(err, io.EOF) {
			b.call.end(b.call.outcome)
		} else {
			b.call.broken(b.res, err)
		}
	}
	return n, err
}

// Close ends the call with the outcome of its header: a caller that skips the rest of the body is not the server's
// fault.
func (b *body) Close() error {
	b.release()
	defer b.call.end(b.call.outcome)
	return b.inner.Close()
}

// release stops waiting for the end of the call.
func (b *body) release() {
	b.stop()
	b.cleanup.Stop()
}

// DefaultTransportOutcome returns the outcome of a call. The first matching rule counts:
//
//   - Ignored if the caller cancelled it, or if err is a refusal by another gate on the way,
//   - Failure for any other error, which includes a deadline that has passed,
//   - Dropped for status 429 and 503,
//   - Failure for any other status from 500 up, except 501 and 505, which are about the request,
//   - Success otherwise: a 4xx answer shows that the server is alive.
func DefaultTransportOutcome(r *http.Request, res *http.Response, err error) spillway.Outcome {
	switch {
	case err != nil && (cancelled(r) || errors.Is(err, spillway.ErrRejected)):
		return spillway.Ignored
	case err != nil || res == nil:
		return spillway.Failure
	}
	switch status := res.StatusCode; {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return spillway.Dropped
	case status == http.StatusNotImplemented, status == http.StatusHTTPVersionNotSupported:
		return spillway.Success
	case status >= 500:
		return spillway.Failure
	}
	return spillway.Success
}

// deadlinePassed reports whether the deadline of r has passed. The context alone may show this a moment too late,
// because the timeout of a client cancels its request with its own timer.
func deadlinePassed(r *http.Request) bool {
	if errors.Is(r.Context().Err(), context.DeadlineExceeded) {
		return true
	}
	deadline, ok := r.Context().Deadline()
	return ok && r.Context().Err() == nil && time.Until(deadline) <= 0
}

// cancelled reports whether r was cancelled by its caller before its deadline.
func cancelled(r *http.Request) bool {
	if deadlinePassed(r) {
		return false
	}
	if r.Context().Err() != nil {
		return true
	}
	select {
	case <-r.Cancel: //nolint:staticcheck // deprecated, yet it is how a request may have been cancelled
		return true
	default:
		return false
	}
}
