package httpgate

import (
	"bufio"
	"net"
	"net/http"
)

//go:generate go run gen_variants.go

// wrap returns a ResponseWriter for r with the optional interfaces of inner, and the exchange inside it: one allocation for both.
func wrap(inner http.ResponseWriter, r *http.Request) (http.ResponseWriter, *exchange) {
	w, x := variants[offered(inner)]()
	x.inner, x.r = inner, r
	return w, x
}

// A writer is the ResponseWriter of a handler. Through it the exchange sees what the handler does. It is the root of
// the variants in variants.go, each of which adds a set of optional interfaces.
type writer struct{ x exchange }

// Header, Write and WriteHeader implement ResponseWriter.
func (w *writer) Header() http.Header { return w.x.inner.Header() }

func (w *writer) Write(b []byte) (int, error) { return w.x.write(b) }

func (w *writer) WriteHeader(status int) { w.x.writeHeader(status) }

// Unwrap serves http.ResponseController. It finds the methods of inner in the variant. It finds the methods of writers
// further inside through deeper, so that their flushes and hijacks are noticed too.
func (w *writer) Unwrap() http.ResponseWriter {
	if _, ok := w.x.inner.(unwrapper); ok {
		return (*deeper)(w)
	}
	return w.x.inner
}

// A deeper gives access to methods that the inner ResponseWriter does not offer itself, but unwraps to.
type deeper writer

func (d *deeper) Header() http.Header         { return d.x.inner.Header() }
func (d *deeper) Write(b []byte) (int, error) { return (*writer)(d).Write(b) }
func (d *deeper) WriteHeader(status int)      { d.x.writeHeader(status) }
func (d *deeper) Unwrap() http.ResponseWriter { return d.x.inner }

// FlushError flushes what inner unwraps to. It returns an error that matches http.ErrNotSupported if nothing there can.
func (d *deeper) FlushError() error {
	d.x.flushing()
	began := d.x.now()
	err := http.NewResponseController(d.x.inner).Flush()
	d.x.waited(began)
	return err //nolint:wrapcheck // a ResponseController adds nothing to an error
}

// Hijack hijacks what inner unwraps to. It returns an error that matches http.ErrNotSupported if nothing there can.
func (d *deeper) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return d.x.hijack(http.NewResponseController(d.x.inner).Hijack)
}

// refusedInside notes that another gate refused the request: an inner one, or one on the way to another service.
func (w *writer) refusedInside() { w.x.refused = true }

// refusedInside notes the same as for a writer.
func (d *deeper) refusedInside() { d.x.refused = true }

// markRefused tells the gates outside w that another gate of this process refused the request. This is not a failure,
// and the policies of that gate already know it.
func markRefused(w http.ResponseWriter) {
	for range maxWrappers {
		if gated, ok := w.(interface{ refusedInside() }); ok {
			gated.refusedInside()
		}
		outer, ok := w.(unwrapper)
		if !ok {
			return
		}
		w = outer.Unwrap()
	}
}

// maxWrappers bounds the search of markRefused, should a ResponseWriter unwrap to itself.
const maxWrappers = 16
