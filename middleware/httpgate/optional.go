//nolint:forcetypeassert // a variant has a method only if inner has it
package httpgate

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// The optional interfaces of a ResponseWriter, as bits of the index of a variant. Deadlines and full duplex are not
// among them: only http.ResponseController uses those, and it follows Unwrap.
const (
	hasFlush = 1 << iota
	hasFlushError
	hasHijack
	hasReadFrom
	hasPush
	hasWriteString
	hasCloseNotify
	numVariants
)

type (
	flushErrorer interface{ FlushError() error }
	unwrapper    interface{ Unwrap() http.ResponseWriter }
	// closeNotifier is http.CloseNotifier, which is deprecated, yet asserted by frameworks.
	closeNotifier interface{ CloseNotify() <-chan bool }
)

// offered returns the optional interfaces that w implements.
func offered(w http.ResponseWriter) (set int) {
	if _, ok := w.(http.Flusher); ok {
		set |= hasFlush
	}
	if _, ok := w.(flushErrorer); ok {
		set |= hasFlushError
	}
	if _, ok := w.(http.Hijacker); ok {
		set |= hasHijack
	}
	if _, ok := w.(io.ReaderFrom); ok {
		set |= hasReadFrom
	}
	if _, ok := w.(http.Pusher); ok {
		set |= hasPush
	}
	if _, ok := w.(io.StringWriter); ok {
		set |= hasWriteString
	}
	if _, ok := w.(closeNotifier); ok {
		set |= hasCloseNotify
	}
	return set
}

// The methods of the optional interfaces, which the variants offer.

func (x *exchange) flush() {
	x.flushing()
	began := x.now()
	x.inner.(http.Flusher).Flush()
	x.waited(began)
}

func (x *exchange) flushError() error {
	x.flushing()
	began := x.now()
	err := x.inner.(flushErrorer).FlushError()
	x.waited(began)
	return err //nolint:wrapcheck // a ResponseWriter adds nothing to an error
}

func (x *exchange) hijackInner() (net.Conn, *bufio.ReadWriter, error) {
	return x.hijack(x.inner.(http.Hijacker).Hijack)
}

func (x *exchange) push(target string, o *http.PushOptions) error {
	return x.inner.(http.Pusher).Push(target, o)
}

func (x *exchange) closeNotify() <-chan bool { return x.inner.(closeNotifier).CloseNotify() }
