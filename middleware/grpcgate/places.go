package grpcgate

import (
	"context"
	"hash/maphash"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/peer"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

// places counts the streams that have left the gate, in total and for each client.
//
// A client gets one more place as long as it has fewer than are free (the dynamic threshold of Choudhury and Hahne,
// "Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM Transactions on Networking, 1998). So
// one client alone takes at most half of all places, n clients leave one share in n+1 free, and there is a place for a
// new client.
type places struct {
	limit   int64
	taken   atomic.Int64
	refused stats.Counter
	seed    maphash.Seed
	shards  [16]placeShard // by client
}

type placeShard struct {
	mu   sync.Mutex
	held map[holder]int64 // of clients that have at least one
}

// A holder is the hash of the client that a stream belongs to. Two clients of the same hash share their places.
type holder uint64

func newPlaces(limit int) *places {
	p := &places{limit: int64(limit), seed: maphash.MakeSeed()}
	for i := range p.shards {
		p.shards[i].held = map[holder]int64{}
	}
	return p
}

// holderOf returns the holder that a call to a server belongs to: its key, or the address of its peer if it has none.
func (p *places) holderOf(ctx context.Context, r *spillway.Request) holder {
	if r.Key != "" {
		return p.holderOfKey(r.Key)
	}
	from, ok := peer.FromContext(ctx)
	if !ok || from.Addr == nil {
		return p.holderOfKey("")
	}
	return holder(maphash.Comparable(p.seed, hostOf(from.Addr)))
}

func (p *places) holderOfKey(key string) holder { return holder(maphash.String(p.seed, key)) }

// hostOf returns the network from which one client may choose its addresses: an IPv4 address, 64 bits of an IPv6
// address, and the zero Prefix for anything else.
func hostOf(addr net.Addr) netip.Prefix {
	var ip netip.Addr
	if tcp, ok := addr.(*net.TCPAddr); ok {
		ip = tcp.AddrPort().Addr()
	} else if ap, err := netip.ParseAddrPort(addr.String()); err == nil {
		ip = ap.Addr()
	}
	ip = ip.Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	prefix, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // no IP address
	}
	return prefix
}

// take takes a place for h, or counts that there was none.
func (p *places) take(h holder) bool {
	if p.tryTake(h) {
		return true
	}
	p.refused.Add(1)
	return false
}

func (p *places) tryTake(h holder) bool {
	for {
		n := p.taken.Load()
		if n >= p.limit {
			return false
		}
		if !p.taken.CompareAndSwap(n, n+1) {
			continue
		}
		if p.shard(h).take(h, p.limit-n) {
			return true
		}
		p.taken.Add(-1)
		return false
	}
}

// full reports whether h would get no place, and counts that.
func (p *places) full(h holder) bool {
	if !p.tryTake(h) {
		p.refused.Add(1)
		return true
	}
	p.giveBack(h)
	return false
}

func (p *places) giveBack(h holder) {
	p.shard(h).giveBack(h)
	p.taken.Add(-1)
}

func (p *places) shard(h holder) *placeShard { return &p.shards[h%holder(len(p.shards))] }

func (s *placeShard) take(h holder, free int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held[h]
	if held >= free {
		return false
	}
	s.held[h] = held + 1
	return true
}

func (s *placeShard) giveBack(h holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[h]--; s.held[h] == 0 {
		delete(s.held, h)
	}
}
