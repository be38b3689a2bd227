package listen

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// shutOut is how long a client that floods gets no connection: long enough that the requests of a second are a small share of
	// the time, and short enough for the neighbors behind the same address.
	shutOut = 10 * time.Second
	// maxShutOut is the number of clients that are shut out at once. Further ones lose only their connections.
	maxShutOut = 1 << 16
)

// floods counts the useless requests of each client in a second, and knows who is shut out.
type floods struct {
	most   int // per second; 0 is no limit
	mu     sync.Mutex
	second int64 // of the counts
	counts map[netip.Prefix]int
	out    map[netip.Prefix]time.Time // when they may come back
}

// add counts a useless request of a client, and reports whether the client is shut out.
func (f *floods) add(now time.Time, client netip.Prefix) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isOut(now, client) {
		return true
	}
	if s := now.Unix(); s != f.second || f.counts == nil {
		f.second, f.counts = s, map[netip.Prefix]int{}
	}
	f.counts[client]++
	if f.counts[client] <= f.most {
		return false
	}
	if len(f.out) >= maxShutOut {
		for c, until := range f.out {
			if !now.Before(until) {
				delete(f.out, c)
			}
		}
	}
	if f.out == nil {
		f.out = map[netip.Prefix]time.Time{}
	}
	if len(f.out) < maxShutOut {
		f.out[client] = now.Add(shutOut)
	}
	return true
}

// shuts reports whether a client is shut out.
func (f *floods) shuts(now time.Time, client netip.Prefix) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.isOut(now, client)
}

// isOut does the same for a caller that holds the lock.
func (f *floods) isOut(now time.Time, client netip.Prefix) bool {
	until, out := f.out[client]
	if out && !now.Before(until) {
		delete(f.out, client)
		return false
	}
	return out
}

type connKey struct{}

// Context returns the context of a connection, for [Useless]. It is the ConnContext of an http.Server.
func Context(ctx context.Context, c net.Conn) context.Context {
	if c := inner(c); c != nil {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// Useless counts a request with the context of a connection that was of no use, because the client has used up its own limits or reset
// the request at once. If its client sent too many of them in a second, the connection is closed, and the client gets no other one for
// a while.
func Useless(ctx context.Context) {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok || c.l.floods.most == 0 {
		return
	}
	ip := addrOf(c.RemoteAddr())
	if ip.IsValid() && c.l.floods.add(time.Now(), network(ip)) {
		c.l.stats.flooding.Add(1)
		c.Close()
	}
}
