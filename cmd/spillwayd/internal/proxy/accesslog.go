package proxy

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// An accessLog writes lines about requests: about all admitted ones or none, and about some of the refused ones.
type accessLog struct {
	logger    *slog.Logger
	all       bool
	perSecond int64 // greatest number of lines about refusals

	second  atomic.Int64 // of the Unix time
	lines   atomic.Int64 // written in it
	skipped atomic.Int64 // refusals without a line since the last line
}

// refuse answers a refused request.
func (l *accessLog) refuse(w http.ResponseWriter, r *http.Request, rej *spillway.Rejection) {
	if l.due(time.Now().Unix()) {
		l.logger.Info("refused", slog.String("policy", rej.Policy), slog.String("reason", rej.Reason), slog.String("method", r.Method),
			slog.String("host", cut(r.Host)), slog.String("path", cut(r.URL.Path)), slog.String("remote", r.RemoteAddr),
			slog.Int64("skipped", l.skipped.Swap(0)))
	}
	httpgate.WriteRefusal(w, r, rej)
}

// cut returns the beginning of a text that a client chose.
func cut(text string) string {
	const most = 256
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}

// due reports whether a refusal in the given second gets a line.
func (l *accessLog) due(second int64) bool {
	if before := l.second.Load(); before != second && l.second.CompareAndSwap(before, second) {
		l.lines.Store(0)
	}
	if l.lines.Load() < l.perSecond && l.lines.Add(1) <= l.perSecond {
		return true
	}
	l.skipped.Add(1)
	return false
}

// around returns h with a line for each request when it ends.
func (l *accessLog) around(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		c := &countingWriter{ResponseWriter: w}
		defer func() { // also if the copy of the body breaks off, which panics
			l.logger.Info("request", slog.String("method", r.Method), slog.String("host", cut(r.Host)), slog.String("path", cut(r.URL.Path)),
				slog.String("remote", r.RemoteAddr), slog.Int("status", c.status), slog.Int64("bytes", c.bytes),
				slog.Duration("duration", time.Since(began)))
		}()
		h.ServeHTTP(c, r)
	})
}

// A countingWriter notes the status and the bytes of an answer. Everything else goes to the inner writer through Unwrap, which
// ReverseProxy uses for flushes and upgrades.
type countingWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// Unwrap returns the inner writer, for http.ResponseController.
func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader notes the status.
func (w *countingWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *countingWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}
