package httpgate

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

// eventStream is the media type of server-sent events.
const eventStream = "text/event-stream"

// errTooManyLongLived refuses a long-lived request for which there is no room.
var errTooManyLongLived = &spillway.Rejection{Policy: "httpgate", Reason: "too many long-lived"}

// longLived counts the long-lived requests that have left the gate.
type longLived struct {
	limit   int64
	open    atomic.Int64
	refused stats.Counter
}

func (l *longLived) full() bool { return l.open.Load() >= l.limit }

// enter takes a place and reports whether there was one.
func (l *longLived) enter() bool {
	for {
		n := l.open.Load()
		if n >= l.limit {
			return false
		}
		if l.open.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (l *longLived) leave() { l.open.Add(-1) }

// claimsLongLife reports whether r is long-lived by the word of Options.LongLived, or else by the word of its client.
func (m *Middleware) claimsLongLife(r *http.Request) bool {
	if m.o.LongLived != nil {
		return m.o.LongLived(r)
	}
	if upgrade := r.Header["Upgrade"]; len(upgrade) > 0 {
		// Some clients offer h2c with every request, which net/http never takes up.
		return !strings.EqualFold(upgrade[0], "h2c")
	}
	accept := r.Header["Accept"]
	return len(accept) == 1 && r.Method == http.MethodGet && isEventStream(accept[0]) && !strings.Contains(accept[0], ",")
}

// isEventStream reports whether a media type, perhaps with parameters, is text/event-stream.
func isEventStream(mediaType string) bool {
	return len(mediaType) >= len(eventStream) && strings.EqualFold(mediaType[:len(eventStream)], eventStream)
}
