package httpgate

import (
	"hash/maphash"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spillway-go/spillway"
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

// longLived counts the long-lived requests that have left the gate, all of them and by key.
type longLived struct {
	limit, perKey int64
	open          atomic.Int64
	refused       stats.Counter
	seed          maphash.Seed
	mu            sync.Mutex
	keys          map[uint64]int64 // by the hash of the key, since keys may be long
}

func newLongLived(limit, perKey int) *longLived {
	return &longLived{limit: int64(limit), perKey: int64(perKey), seed: maphash.MakeSeed(), keys: map[uint64]int64{}}
}

// refuses returns the reason why there is no room for another long-lived request of key, or nil.
func (l *longLived) refuses(key string) *spillway.Rejection {
	if l.open.Load() >= l.limit {
		return errTooManyLongLived
	}
	if key == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys[maphash.String(l.seed, key)] >= l.perKey {
		return errTooManyOfKey
	}
	return nil
}

// enter takes a place for key and reports whether there was one.
func (l *longLived) enter(key string) bool {
	if l.open.Add(1) > l.limit {
		l.open.Add(-1)
		return false
	}
	if key == "" {
		return true
	}
	hash := maphash.String(l.seed, key)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys[hash] >= l.perKey {
		l.open.Add(-1)
		return false
	}
	l.keys[hash]++
	return true
}

// leave gives back a place of key.
func (l *longLived) leave(key string) {
	l.open.Add(-1)
	if key == "" {
		return
	}
	hash := maphash.String(l.seed, key)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys[hash]--; l.keys[hash] == 0 {
		delete(l.keys, hash)
	}
}

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
