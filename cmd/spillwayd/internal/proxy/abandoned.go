package proxy

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cmd/spillwayd/internal/upstream"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// A call is a request to the backend. It does not end when the client leaves, because most servers go on with a request whose client has
// left: it has its place among the requests in flight until the server answers, or for the time that backend.abandoned gives it.
//
// A call is also the context of the request, with the values of the client's context and without its end. The context that is passed on
// is around it, and has the end.
type call struct {
	context.Context                 //nolint:containedctx // it has no end
	client          context.Context //nolint:containedctx // of the client
	body            *upstream.Body  // nil if there is none
	cancel          context.CancelFunc
	answered        atomic.Bool // the header of the answer has arrived

	home       *callList // the list that it is in; home.mu guards the rest
	prev, next *call
	leftAt     time.Time // when the client was found to have left
}

type callKey struct{}

// Value returns the call itself for callKey, the client's context for upstream, and otherwise the value of that context.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	if upstream.IsClientKey(key) {
		return c.client
	}
	return c.client.Value(key)
}

// calls are the calls under way. While there are some, they look at times whose clients have left. This costs each call less than a
// function that waits for the end of its client's context.
type calls struct {
	most    time.Duration // that a call outlives its client
	every   time.Duration // between two looks
	looking atomic.Bool   // the timer is set
	lists   [16]callList  // several, so that processors do not wait for each other
}

// A callList is some of the calls.
type callList struct {
	mu    sync.Mutex
	first *call
}

func newCalls(most time.Duration) *calls {
	const often, seldom = time.Millisecond, 20 * time.Millisecond
	return &calls{most: most, every: min(max(most, often), seldom)}
}

// outlive returns h with a context for its requests that outlives the client.
func (l *calls) outlive(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{Context: context.Background(), client: r.Context()}
		if r.Body != http.NoBody {
			c.body = upstream.BodyOf(c.client) //nolint:contextcheck // it belongs to the client
		}
		var inner context.Context
		if at, ok := c.client.Deadline(); ok {
			inner, c.cancel = context.WithDeadline(c, at)
		} else {
			inner, c.cancel = context.WithCancel(c)
		}
		l.enter(c)
		defer c.end()
		h.ServeHTTP(w, r.WithContext(inner)) //nolint:contextcheck // it outlives the client
	})
}

// enter adds c.
func (l *calls) enter(c *call) {
	list := &l.lists[rand.Uint32()%uint32(len(l.lists))]
	c.home = list
	list.mu.Lock()
	if c.next = list.first; c.next != nil {
		c.next.prev = c
	}
	list.first = c
	list.mu.Unlock()
	if !l.looking.Load() && l.looking.CompareAndSwap(false, true) {
		time.AfterFunc(l.every, l.look)
	}
}

// end removes c from its list and ends its context.
func (c *call) end() {
	list := c.home
	list.mu.Lock()
	if c.prev == nil {
		list.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	list.mu.Unlock()
	c.cancel()
}

// look ends the calls whose clients have left for long enough, and looks again later as long as there are calls.
func (l *calls) look() {
	l.looking.Store(false) // a call that enters from now on sets the timer itself
	now, some := time.Now(), false
	for i := range l.lists {
		if l.lists[i].look(now, l.most) {
			some = true
		}
	}
	if some && l.looking.CompareAndSwap(false, true) {
		time.AfterFunc(l.every, l.look)
	}
}

// look does the same for one list. It reports whether there are calls in it.
func (list *callList) look(now time.Time, most time.Duration) bool {
	list.mu.Lock()
	defer list.mu.Unlock()
	for c := list.first; c != nil; c = c.next {
		if c.client.Err() == nil {
			continue
		}
		if c.leftAt.IsZero() {
			c.leftAt = now
		}
		if c.answered.Load() || now.Sub(c.leftAt) >= most { // once the answer has begun, nobody reads the rest
			c.cancel()
		}
	}
	return list.first != nil
}

// arrived notes that the header of an answer has arrived. If the client has left, the body is not read.
func arrived(res *http.Response) error {
	if c, ok := res.Request.Context().Value(callKey{}).(*call); ok {
		c.answered.Store(true)
		if c.body != nil {
			c.body.Answered()
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
