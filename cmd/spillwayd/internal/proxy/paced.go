package proxy

import (
	"net/http"
	"time"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/upstream"
)

// A pacedWriter ends a stream of HTTP/2 whose client takes no answer. The connection does not block then, so it cannot tell.
type pacedWriter struct {
	http.ResponseWriter
	watch upstream.Watch
}

func newPacedWriter(w http.ResponseWriter, most time.Duration) *pacedWriter {
	return &pacedWriter{ResponseWriter: w, watch: upstream.Watch{Most: most, Deadline: http.NewResponseController(w).SetWriteDeadline}}
}

// Unwrap returns the inner writer, for http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *pacedWriter) Write(p []byte) (n int, err error) {
	w.watch.Do(func() { n, err = w.ResponseWriter.Write(p) })
	return n, err
}

// FlushError sends what was written.
func (w *pacedWriter) FlushError() (err error) {
	w.watch.Do(func() { err = http.NewResponseController(w.ResponseWriter).Flush() })
	return err
}

// Flush sends what was written.
func (w *pacedWriter) Flush() { _ = w.FlushError() }

// end leaves the server the time of one write for the rest of the answer.
func (w *pacedWriter) end() {
	if w.watch.End() {
		_ = w.watch.Deadline(time.Now().Add(w.watch.Most))
	}
}
