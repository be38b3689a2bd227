package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// A Body is the body of a client's request. It knows whether the client is to blame if the request fails: a stranger who breaks off
// his uploads must not eject a backend. It is safe for concurrent use as far as the inner body is.
type Body struct {
	io.ReadCloser
	ended  atomic.Bool           // it was read to its end
	err    atomic.Pointer[error] // of a read
	since  atomic.Int64          // when the read under way began, in ns of the Unix time; 0 if there is none
	waited atomic.Int64          // ns in reads that have ended
}

// slow is the time after which a backend may give up an upload for want of bytes.
const slow = time.Second

// Read reads from the inner body.
func (b *Body) Read(p []byte) (int, error) {
	began := time.Now()
	b.since.Store(began.UnixNano())
	n, err := b.ReadCloser.Read(p)
	b.waited.Add(int64(time.Since(began)))
	b.since.Store(0)
	switch {
	case errors.Is(err, io.EOF):
		b.ended.Store(true)
	case err != nil && !errors.Is(err, http.ErrBodyReadAfterClose):
		b.err.CompareAndSwap(nil, &err)
	}
	return n, err
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

// WithBody returns r with a Body around its body. The context of the result holds it, so that it is found behind what wraps it.
func WithBody(r *http.Request) *http.Request {
	b := &Body{ReadCloser: r.Body}
	r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, b))
	r.Body = b
	return r
}

// BodyOf returns the Body in ctx, or nil.
func BodyOf(ctx context.Context) *Body {
	b, _ := ctx.Value(bodyKey{}).(*Body)
	return b
}

// Blamed reports whether the client that sent r may be the cause of a failure: the body of r broke, or has kept the backend waiting
// for a second in all and has not ended.
func Blamed(r *http.Request) bool {
	b := BodyOf(r.Context())
	return b != nil && b.blamed()
}
