package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// A Body is the body of a client's request. It ends a client that sends it too slowly, and it knows whether the client is to blame if
// the request fails: a stranger who breaks off his uploads must not eject a backend. Reads must not overlap.
type Body struct {
	io.ReadCloser
	Came   time.Time             // when the request came
	ended  atomic.Bool           // it was read to its end
	err    atomic.Pointer[error] // of a read
	since  atomic.Int64          // when the read under way began, in ns of the Unix time; 0 if there is none
	waited atomic.Int64          // ns in reads that have ended
	size   int64                 // bytes read
	watch  Watch

	http1    bool
	answered atomic.Bool
}

const (
	slow = time.Second // the time after which a backend may give up an upload for want of bytes
	pace = 1 << 10     // bytes that give a client a further second
)

// Read reads from the inner body.
func (b *Body) Read(p []byte) (int, error) {
	began := time.Now()
	b.since.Store(began.UnixNano())
	if most := b.watch.Most; most > 0 {
		b.watch.begin(most + time.Duration(b.size*int64(time.Second)/pace-b.waited.Load()))
	}
	n, err := b.ReadCloser.Read(p)
	b.watch.done()
	b.waited.Add(int64(time.Since(began)))
	b.since.Store(0)
	b.size += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		b.ended.Store(true)
		if b.answered.Load() {
			b.watch.set(time.Time{}) // the server watches for the end of the connection from now on
		}
	case err != nil && !errors.Is(err, http.ErrBodyReadAfterClose):
		b.err.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Answered notes that the answer has begun. In HTTP/1 the server reads the rest of the body itself then, so it gets a deadline.
func (b *Body) Answered() {
	if b.http1 && !b.ended.Load() {
		b.answered.Store(true)
		b.watch.set(time.Now().Add(b.watch.Most))
	}
}

// End ends the Body with its request. The server gets at most the time rest to read what the handler did not.
func (b *Body) End() {
	const rest = 5 * time.Second
	if b.watch.End() && !b.ended.Load() {
		_ = b.watch.Deadline(time.Now().Add(min(b.watch.Most, rest)))
	}
}

// Err returns the error that the client caused, such as a connection that broke or a body that is too large, or nil.
func (b *Body) Err() error {
	if err := b.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (b *Body) blamed() bool {
	if b.Err() != nil {
		return true
	}
	if b.ended.Load() {
		return false
	}
	waited := b.waited.Load()
	if since := b.since.Load(); since != 0 {
		waited += time.Now().UnixNano() - since
	}
	return waited >= int64(slow)
}

type bodyKey struct{}

// WithBody returns r with a Body around its body. The context of the result holds it, so that it is found behind what wraps it. The
// client may keep readers waiting for the time most, and for a second more for each KiB; 0 is no limit. The caller must call End.
func WithBody(w http.ResponseWriter, r *http.Request, most time.Duration) (*http.Request, *Body) {
	b := &Body{ReadCloser: r.Body, Came: time.Now(), watch: Watch{Most: most}, http1: r.ProtoMajor == 1}
	if most > 0 {
		b.watch.Deadline = http.NewResponseController(w).SetReadDeadline
	}
	r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, b))
	r.Body = b
	return r, b
}

// BodyOf returns the Body in ctx, or nil.
func BodyOf(ctx context.Context) *Body {
	b, _ := ctx.Value(bodyKey{}).(*Body)
	return b
}

// Blamed reports whether the client that sent r may be the cause of a failure: the body of r broke, or has kept the backend waiting
// for a second in all and has not ended.
func Blamed(r *http.Request) bool {
	if r.Body == nil || r.Body == http.NoBody { // most requests
		return false
	}
	b := BodyOf(r.Context())
	return b != nil && b.blamed()
}
