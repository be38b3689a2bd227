package httpgate

import (
	"net/http"
	"strings"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/places"
	"github.com/spillway-go/spillway/stats"
)

// eventStream is the media type of server-sent events.
const eventStream = "text/event-stream"

// errTooManyLongLived refuses a long-lived request for which there is no room. errTooManyOfKey refuses one whose key
// has used up its share.
var (
	errTooManyLongLived = &spillway.Rejection{Policy: "httpgate", Reason: "too many long-lived"}
	errTooManyOfKey     = &spillway.Rejection{Policy: "httpgate", Reason: "too many long-lived of one key", OverQuota: true}
)

// longLived are the places of the long-lived requests that have left the gate.
type longLived struct {
	*places.Places

	refused stats.Counter
}

// holderOf returns the holder with key, or the unknown one if key is empty.
func (l *longLived) holderOf(key string) places.Holder {
	if key == "" {
		return 0
	}
	return l.Of(key)
}

// refuses returns the reason why there is no room for another long-lived request of key, or nil.
func (l *longLived) refuses(key string) *spillway.Rejection {
	v := l.Check(l.holderOf(key))
	if v == places.Granted {
		return nil
	}
	l.refused.Add(1)
	if v == places.OverShare {
		return errTooManyOfKey
	}
	return errTooManyLongLived
}

// leave gives back a place of key.
func (l *longLived) leave(key string) { l.GiveBack(l.holderOf(key)) }

// claimsLongLife reports whether r is long-lived according to Options.LongLived or, if that is nil, to its client.
func (m *Middleware) claimsLongLife(r *http.Request) bool {
	if m.o.LongLived != nil {
		return m.o.LongLived(r)
	}
	if upgrade := r.Header["Upgrade"]; len(upgrade) > 0 {
		// Some clients offer h2c with every request, which net/http never takes up.
		return !strings.EqualFold(upgrade[0], "h2c")
	}
	if isTunnel(r) {
		return true
	}
	accept := r.Header["Accept"]
	return len(accept) == 1 && r.Method == http.MethodGet && isEventStream(accept[0]) && !strings.Contains(accept[0], ",")
}

// isTunnel reports whether r is an extended CONNECT, as WebSockets over HTTP/2 (RFC 8441) and HTTP/3 (RFC 9220) begin.
// net/http keeps the protocol of the tunnel in the header, quic-go in Request.Proto.
func isTunnel(r *http.Request) bool {
	return r.Method == http.MethodConnect &&
		(len(r.Header[":protocol"]) > 0 || r.ProtoMajor == 3 && !strings.HasPrefix(r.Proto, "HTTP/"))
}

// isEventStream reports whether a media type, perhaps with parameters, is text/event-stream.
func isEventStream(mediaType string) bool {
	return len(mediaType) >= len(eventStream) && strings.EqualFold(mediaType[:len(eventStream)], eventStream)
}
