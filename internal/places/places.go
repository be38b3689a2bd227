// Package places limits how many requests or streams may be open beyond their gate, in total and for each client.
package places

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Places is a fixed number of places. It is made by [New]. All methods may be called concurrently.
type Places struct {
	limit, share int64
	taken        atomic.Int64
	seed         maphash.Seed
	shards       [16]shard // by holder
}

type shard struct {
	mu   sync.Mutex
	held map[Holder]int64 // of holders that have at least one place
}

// A Holder is the hash of a client. Two clients with the same hash share their places. The zero Holder is unknown: only the
// total limits it.
type Holder uint64

// A Verdict is the answer to a request for a place.
type Verdict uint8

// The verdicts.
const (
	Granted   Verdict = iota
	Full              // all places are taken
	OverShare         // the holder has used up its share
)

// New returns limit free places, of which one holder may take up to share. If share is 0, a holder may take one more place as
// long as it has fewer than are free (the dynamic threshold of Choudhury and Hahne, "Dynamic queue length thresholds for
// shared-memory packet switches", IEEE/ACM Transactions on Networking, 1998). So one holder alone takes at most half of all
// places, n holders leave one share in n+1 free, and there is a place for a new holder.
func New(limit, share int) *Places {
	p := &Places{limit: int64(limit), share: int64(share), seed: maphash.MakeSeed()}
	for i := range p.shards {
		p.shards[i].held = map[Holder]int64{}
	}
	return p
}

// Of returns the holder with the given key.
func (p *Places) Of(key string) Holder { return Holder(maphash.String(p.seed, key)) }

// At returns the holder with the given addresses.
func (p *Places) At(addresses netip.Prefix) Holder {
	return Holder(maphash.Comparable(p.seed, addresses))
}

// Taken returns the number of places that are taken.
func (p *Places) Taken() int64 { return p.taken.Load() }

// Take takes a place for h. If it returns Granted, GiveBack must follow.
func (p *Places) Take(h Holder) Verdict {
	for {
		n := p.taken.Load()
		if n >= p.limit {
			return Full
		}
		if !p.taken.CompareAndSwap(n, n+1) {
			continue
		}
		if h == 0 || p.shard(h).take(h, p.shareOf(n)) {
			return Granted
		}
		p.taken.Add(-1)
		return OverShare
	}
}

// Check returns the present answer of Take, and takes no place.
func (p *Places) Check(h Holder) Verdict {
	n := p.taken.Load()
	switch {
	case n >= p.limit:
		return Full
	case h != 0 && p.shard(h).count(h) >= p.shareOf(n):
		return OverShare
	}
	return Granted
}

// GiveBack gives back a place of h.
func (p *Places) GiveBack(h Holder) {
	if h != 0 {
		p.shard(h).giveBack(h)
	}
	p.taken.Add(-1)
}

// shareOf returns how many places a holder may have while taken places are taken.
func (p *Places) shareOf(taken int64) int64 {
	if p.share > 0 {
		return p.share
	}
	return p.limit - taken
}

func (p *Places) shard(h Holder) *shard { return &p.shards[h%Holder(len(p.shards))] }

func (s *shard) count(h Holder) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[h]
}

func (s *shard) take(h Holder, share int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[h] >= share {
		return false
	}
	s.held[h]++
	return true
}

func (s *shard) giveBack(h Holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[h]--; s.held[h] == 0 {
		delete(s.held, h)
	}
}
