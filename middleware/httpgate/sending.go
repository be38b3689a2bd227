//nolint:forcetypeassert // a variant has a method only if inner has it
package httpgate

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"time"
)

// firstBuffer is the size of the smallest buffer of net/http between a handler and its client, in bytes. A Write that does
// not fill it cannot wait for the client, so that the clock need not be read.
const firstBuffer = 2048

// fills reports whether a Write of n bytes reaches beyond the first buffer, as bufio.Writer does.
func (x *exchange) fills(n int) bool {
	if x.buffered+n <= firstBuffer {
		x.buffered += n
		return false
	}
	if x.buffered > 0 { // the buffer is filled up and sent
		n -= firstBuffer - x.buffered
	}
	if x.buffered = n; n > firstBuffer { // sent as it is
		x.buffered = 0
	}
	return true
}

// now returns the time since the request arrived, at half the price of time.Now.
func (x *exchange) now() time.Duration { return time.Since(x.permit.Arrived()) }

// waited subtracts the time since began from the latency.
func (x *exchange) waited(began time.Duration) { x.blocked.Add(int64(x.now() - began)) }

func (x *exchange) write(b []byte) (int, error) {
	x.commit(http.StatusOK)
	if !x.fills(len(b)) {
		return x.inner.Write(b) //nolint:wrapcheck // a ResponseWriter adds nothing to an error
	}
	began := x.now()
	n, err := x.inner.Write(b)
	x.waited(began)
	return n, err //nolint:wrapcheck // as above
}

func (x *exchange) writeString(s string) (int, error) {
	x.commit(http.StatusOK)
	inner := x.inner.(io.StringWriter)
	if !x.fills(len(s)) {
		return inner.WriteString(s) //nolint:wrapcheck // as above
	}
	began := x.now()
	n, err := inner.WriteString(s)
	x.waited(began)
	return n, err //nolint:wrapcheck // as above
}

// readFrom copies src to the client. The header is sent with the first byte: a src that fails before it leaves the status
// open.
func (x *exchange) readFrom(src io.Reader) (int64, error) {
	inner := x.inner.(io.ReaderFrom)
	x.tell()
	began := x.now()
	s := &source{Reader: src, x: x}
	var n int64
	var err error
	switch {
	case fromFile(src): // which net/http sends by itself
		n, err = inner.ReadFrom(src)
		x.waited(began)
	case writesItself(src):
		n, err = inner.ReadFrom(src)
	default:
		n, err = inner.ReadFrom(s)
		x.waited(began + s.took)
	}
	if n > 0 || s.read || errors.Is(err, http.ErrContentLength) {
		x.commit(http.StatusOK)
	}
	x.buffered = firstBuffer // whatever is left in it
	return n, err            //nolint:wrapcheck // as above
}

// A source measures how long the handler's own reader takes, so that the rest of a copy is the time of the client.
type source struct {
	io.Reader
	x    *exchange
	took time.Duration
	read bool
}

func (s *source) Read(p []byte) (int, error) {
	began := s.x.now()
	n, err := s.Reader.Read(p)
	s.took += s.x.now() - began
	s.read = s.read || n > 0
	return n, err //nolint:wrapcheck // a Reader adds nothing to an error
}

// writesItself reports whether src has its own way to be copied, which wrapping would hide.
func writesItself(src io.Reader) bool {
	_, ok := src.(io.WriterTo)
	return ok
}

// fromFile reports whether src is a file, or a part of one.
func fromFile(src io.Reader) bool {
	if limited, ok := src.(*io.LimitedReader); ok {
		src = limited.R
	}
	_, ok := src.(fs.File) // io.Copy hides the type of an os.File
	return ok
}
