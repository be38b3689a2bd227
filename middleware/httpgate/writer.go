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

// A writer is what a handler gets: a ResponseWriter through which its exchange sees what happens. It is the root of the
// variants in variants.go, each of which adds a set of optional interfaces.
type writer struct{ x exchange }

// Header, Write and WriteHeader are those of a ResponseWriter.
func (w *writer) Header() http.Header { return w.x.inner.Header() }

func (w *writer) Write(b []byte) (int, error) { return w.x.write(b) }

func (w *writer) WriteHeader(status int) { w.x.writeHeader(status) }

// Unwrap serves http.ResponseController. It finds in the variant what inner offers itself; what lies deeper it finds
// through deeper, so that a flush or hijack down there is noticed too.
func (w *writer) Unwrap() http.ResponseWriter {
	if _, ok := w.x.inner.(unwrapper); ok {
		return (*deeper)(w)
	}
	return w.x.inner
}

// A deeper is a writer on the way to what its inner ResponseWriter does not offer, but unwraps to.
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

// refusedInside notes that a gate further in refused the request, or one on the way to another service.
func (w *writer) refusedInside() { w.x.refused = true }

// refusedInside is that of a writer.
func (d *deeper) refusedInside() { d.x.refused = true }

// markRefused tells the gates outside of w that the request was refused by another gate of this process: no fault of
// anybody, and known to the policies of that gate already.
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
