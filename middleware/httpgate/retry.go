package httpgate

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-go/spillway"
)

// A Retry says when a [Transport] sends a request again. The zero Retry consists entirely of defaults.
//
// A request is sent again if its answer was 429, 502, 503 or 504, or if there was none because the server or the network
// failed. It must be idempotent, its body must be repeatable ([http.Request.GetBody]), and the Budget must allow it. It is
// not sent again if the gate, or what the server asked for (ListenTo), refuses it, nor if the answer says
// "X-Envoy-Overloaded: true".
//
// The wait before a retry is random, from 0 to Backoff. The upper bound doubles with each further retry ("full jitter"), and
// the [RetryAfter] of the answer is added. If the wait would be longer than MaxBackoff, or last until the context of the request ends,
// the caller gets the answer at once. The answers in between are closed.
//
// Each attempt passes the gate. A retry has the header X-Envoy-Attempt-Count with the number of the attempt, so that
// servers and proxies on the way can count retries.
type Retry struct {
	// Attempts is the most times that a request is sent, from 2 to 10. If Attempts is 0, it is 3.
	Attempts int
	// Backoff is the longest wait before the first retry, at least 1 ms. If Backoff is 0, it is 100 ms.
	Backoff time.Duration
	// MaxBackoff is the longest wait, at least Backoff. If MaxBackoff is 0, it is 10 s, or Backoff if that is longer.
	MaxBackoff time.Duration
	// Idempotent reports whether sending r twice does no more than sending it once. If Idempotent is nil, these are: GET,
	// HEAD, OPTIONS, TRACE, PUT, DELETE, and any request with the header Idempotency-Key or X-Idempotency-Key.
	Idempotent func(r *http.Request) bool
}

// attemptHeader is the header with the number of the attempt, as Envoy has it.
const attemptHeader = "X-Envoy-Attempt-Count"

const (
	defaultAttempts   = 3
	mostAttempts      = 10
	defaultBackoff    = 100 * time.Millisecond
	defaultMaxBackoff = 10 * time.Second
)

// withDefaults returns o with all fields set, or nil if o is nil. The error names the field and its value.
func (o *Retry) withDefaults() (*Retry, error) {
	if o == nil {
		return nil, nil //nolint:nilnil // nil sends nothing again
	}
	out := *o
	if out.Attempts == 0 {
		out.Attempts = defaultAttempts
	}
	if out.Attempts < 2 || out.Attempts > mostAttempts {
		return nil, fmt.Errorf("httpgate: Retry.Attempts: must be from 2 to %d, got %d", mostAttempts, out.Attempts)
	}
	if out.Backoff == 0 {
		out.Backoff = defaultBackoff
	}
	if out.Backoff < time.Millisecond || out.Backoff > maxTimeout {
		return nil, fmt.Errorf("httpgate: Retry.Backoff: must be at least 1ms and at most a year, got %v", out.Backoff)
	}
	if out.MaxBackoff == 0 {
		out.MaxBackoff = max(defaultMaxBackoff, out.Backoff)
	}
	if out.MaxBackoff < out.Backoff || out.MaxBackoff > maxTimeout {
		return nil, fmt.Errorf("httpgate: Retry.MaxBackoff: must be at least Backoff (%v) and at most a year, got %v", out.Backoff, out.MaxBackoff)
	}
	if out.Idempotent == nil {
		out.Idempotent = idempotent
	}
	return &out, nil
}

// idempotent reports whether the method or a header of r says so.
func idempotent(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return len(r.Header["Idempotency-Key"]) > 0 || len(r.Header["X-Idempotency-Key"]) > 0
}

// repeat sends r until there is an answer to keep. A request that has been sent once is sent again only if that is
// safe.
func (t *Transport) repeat(r *http.Request) (*http.Response, error) {
	retry := t.o.Retry
	res, o, err := t.once(r)
	if !again(r, res, o) || !repeatable(r) || !retry.Idempotent(r) {
		return res, err
	}
	longest := retry.Backoff
	for sent := 1; sent < retry.Attempts; sent++ {
		wait := time.Duration(rand.Int64N(int64(longest) + 1))
		longest = min(2*longest, retry.MaxBackoff)
		if res != nil {
			wait += RetryAfter(res.Header, time.Now())
		}
		if wait > retry.MaxBackoff || !t.o.Budget.Allow() || outlasts(r, wait) {
			return res, err
		}
		next, ok := anew(r, sent+1)
		if !ok {
			return res, err
		}
		if res != nil {
			discard(res.Body)
		}
		if err := pause(r, wait); err != nil {
			if next.Body != nil {
				next.Body.Close()
			}
			return nil, err
		}
		t.again.Add(1)
		if res, o, err = t.once(next); res != nil && res.Request == next {
			res.Request = r
		}
		if !again(r, res, o) {
			break
		}
	}
	return res, err
}

// again reports whether another attempt may have a better result.
func again(r *http.Request, res *http.Response, o spillway.Outcome) bool {
	switch {
	case r.Context().Err() != nil, o != spillway.Failure && o != spillway.Dropped:
		return false
	case res == nil:
		return true
	}
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return res.Header.Get("X-Envoy-Overloaded") != "true"
	}
	return false
}

// repeatable reports whether the body of r can be sent again.
func repeatable(r *http.Request) bool { return !hasBody(r) || r.GetBody != nil }

// outlasts reports whether the context of r ends before wait is over.
func outlasts(r *http.Request, wait time.Duration) bool {
	by, ok := r.Context().Deadline()
	return ok && time.Until(by) <= wait
}

// anew returns r as it is sent for the given time.
func anew(r *http.Request, times int) (*http.Request, bool) {
	next := r.Clone(r.Context())
	if hasBody(r) {
		body, err := r.GetBody()
		if err != nil {
			return nil, false
		}
		next.Body = body
	}
	if next.Header == nil {
		next.Header = http.Header{}
	}
	next.Header[attemptHeader] = []string{strconv.Itoa(times)}
	return next, true
}

const (
	discardMost = 16 << 10 // bytes of an answer that are read to keep its connection
	discardWait = 100 * time.Millisecond
)

// discard reads the rest of a short body, so that its connection can be used again, and closes it.
func discard(body io.ReadCloser) {
	slow := time.AfterFunc(discardWait, func() { body.Close() })
	_, _ = io.CopyN(io.Discard, body, discardMost)
	slow.Stop()
	body.Close()
}

// pause waits, or returns the error of the context of r if that ends before.
func pause(r *http.Request, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-r.Context().Done():
		return r.Context().Err() //nolint:wrapcheck // as net/http returns it
	case <-timer.C:
		return nil
	}
}
