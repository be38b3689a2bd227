package proxy

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cmd/spillwayd/internal/upstream"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// A call is the context of a request to the backend. It does not end when the client leaves, because most servers go on with a
// request whose client has left: it has its place among the requests in flight until the server answers, or for the time that
// backend.abandoned gives it.
type call struct {
	context.Context                 //nolint:containedctx // it is a context
	client          context.Context //nolint:containedctx // of the client
	answered        atomic.Bool     // the header of the answer has arrived
}

type callKey struct{}

// Value returns the call itself for callKey.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// outlive returns h with a context for its requests that outlives the client by at most the given time.
func outlive(h http.Handler, most time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client := r.Context()
		inner, cancel := context.WithCancel(context.WithoutCancel(client))
		defer cancel()
		if at, ok := client.Deadline(); ok {
			inner, cancel = context.WithDeadline(inner, at)
			defer cancel()
		}
		c := &call{Context: inner, client: client}
		defer context.AfterFunc(client, func() {
			defer cancel()
			if c.answered.Load() { // nobody reads the rest of the answer
				return
			}
			wait := time.NewTimer(most)
			defer wait.Stop()
			select {
			case <-wait.C:
			case <-inner.Done():
			}
		})()
		h.ServeHTTP(w, r.WithContext(c)) //nolint:contextcheck // it outlives the client
	})
}

// arrived notes that the header of an answer has arrived. If the client has left, the body is not read.
func arrived(res *http.Response) error {
	if c, ok := res.Request.Context().Value(callKey{}).(*call); ok {
		c.answered.Store(true)
		if b := upstream.BodyOf(c); b != nil {
			b.Answered()
		}
		if c.client.Err() != nil {
			res.Body.Close()
			res.Body = http.NoBody
		}
	}
	return nil
}

// outcome is [httpgate.DefaultOutcome], but an answer of the backend counts although its client has left: it says how much the
// backend can do. A failure or a latency for which the body of the client may be to blame says nothing.
func outcome(r *http.Request, status int) spillway.Outcome {
	if upstream.Blamed(r) {
		return spillway.Ignored
	}
	ctx := r.Context()
	if errors.Is(ctx.Err(), context.Canceled) && status < http.StatusBadGateway {
		ctx = context.WithoutCancel(ctx)
	}
	return httpgate.DefaultOutcome(ctx, status)
}
