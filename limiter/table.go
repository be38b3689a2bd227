package limiter

import (
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
)

// A table maps keys to states. It holds no keys but fingerprints of 128 bits, by two hashes with random seeds: it takes the
// same memory for keys of any length, holds nothing that a leak could expose, and two keys collide with a probability
// that can be ignored. A state is forgotten when it is as good as new and room is needed, and never before.
type table[S any] struct {
	seeds  [2]maphash.Seed
	keys   atomic.Int64
	max    int64
	shards []shard[S]
}

// A shard is a part of a table: a hash table with linear probing, and a lock.
type shard[S any] struct {
	mu sync.Mutex
	// Guarded by mu.
	slots  []slot[S] // as many as a power of two
	used   int
	hand   int   // where to look next for a state to forget
	last   int64 // the greatest ns at which one was forgotten
	shared slot[S]
	counts counts
	tally  tableCounts
	_      [64]byte // keeps neighbours out of each other's cache line
}

type tableCounts struct{ forgotten, overflowed int64 }

type slot[S any] struct {
	id    fingerprint // id[0] is 0 if the slot is free
	state S
}

type fingerprint [2]uint64

const (
	minSlots  = 8
	handSteps = 4 // slots looked at for each key that comes new: four rounds before a table has doubled
)

func newTable[S any](maxKeys int) *table[S] {
	t := &table[S]{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, max: int64(maxKeys)}
	shards := 1
	for shards < 16*runtime.GOMAXPROCS(0) && shards < 256 && shards*minSlots < maxKeys {
		shards *= 2
	}
	t.shards = make([]shard[S], shards)
	return t
}

// lock returns the locked shard of a key, and its fingerprint.
func (t *table[S]) lock(key string) (*shard[S], fingerprint) {
	id := fingerprint{maphash.String(t.seeds[0], key) | 1, maphash.String(t.seeds[1], key)}
	sh := &t.shards[id[1]&uint64(len(t.shards)-1)]
	sh.mu.Lock()
	return sh, id
}

// find returns the slot of id, or nil.
func (sh *shard[S]) find(id fingerprint) *slot[S] {
	if len(sh.slots) == 0 {
		return nil
	}
	mask := len(sh.slots) - 1
	for i := sh.home(id); ; i = (i + 1) & mask {
		s := &sh.slots[i]
		if s.id == id {
			return s
		}
		if s.id[0] == 0 {
			return nil
		}
	}
}

// home returns the index where the search for id begins. The lowest bit of id[0] is always 1, so it uses the others.
func (sh *shard[S]) home(id fingerprint) int { return int(id[0]>>1) & (len(sh.slots) - 1) }

// insert returns a new slot for id, or nil if there are as many keys as may be.
func (sh *shard[S]) insert(t *table[S], id fingerprint) *slot[S] {
	if n := t.keys.Add(1); n > t.max {
		t.keys.Add(-1)
		return nil
	}
	switch size := len(sh.slots); {
	case sh.used >= size-size/4:
		sh.resize(max(2*size, minSlots))
	case sh.used < size/8 && size > minSlots:
		sh.resize(size / 2)
	}
	sh.used++
	s := sh.place(id)
	s.id = id
	return s
}

// place returns the free slot where id belongs.
func (sh *shard[S]) place(id fingerprint) *slot[S] {
	i := sh.home(id)
	for sh.slots[i].id[0] != 0 {
		i = (i + 1) & (len(sh.slots) - 1)
	}
	return &sh.slots[i]
}

func (sh *shard[S]) resize(size int) {
	old := sh.slots
	sh.slots = make([]slot[S], size)
	sh.hand = 0
	for i := range old {
		if old[i].id[0] != 0 {
			*sh.place(old[i].id) = old[i]
		}
	}
}

// forget frees those of the next few slots whose states are idle.
func (sh *shard[S]) forget(t *table[S], now int64, idle func(*S) bool) {
	for range min(handSteps, len(sh.slots)) {
		sh.hand &= len(sh.slots) - 1
		s := &sh.slots[sh.hand]
		if s.id[0] == 0 || !idle(&s.state) {
			sh.hand++
			continue
		}
		sh.free(sh.hand) // which may move another into the slot, to be looked at next
		sh.used--
		t.keys.Add(-1)
		sh.tally.forgotten++
		sh.last = max(sh.last, now)
	}
}

// free empties slot i and moves up those that would not be found any more.
func (sh *shard[S]) free(i int) {
	mask := len(sh.slots) - 1
	for j := (i + 1) & mask; sh.slots[j].id[0] != 0; j = (j + 1) & mask {
		// What belongs behind i is found without passing it.
		if home := sh.home(sh.slots[j].id); (j-home)&mask < (j-i)&mask {
			continue
		}
		sh.slots[i] = sh.slots[j]
		i = j
	}
	sh.slots[i] = slot[S]{}
}

// each calls f with every state, the shared ones included. The caller holds all locks.
func (t *table[S]) each(f func(*S)) {
	for i := range t.shards {
		sh := &t.shards[i]
		for j := range sh.slots {
			if sh.slots[j].id[0] != 0 {
				f(&sh.slots[j].state)
			}
		}
		f(&sh.shared.state)
	}
}
