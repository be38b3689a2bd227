package limiter

import (
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A table maps keys to states. Instead of keys it holds fingerprints of 62 bits, computed by a hash with a random seed.
// So it takes the same memory for keys of any length, and a leak exposes no keys. The probability that any two of a
// million keys collide and share a state is 1 in 9 million. An attacker without the seed cannot construct such keys.
//
// A state is forgotten only when it equals a new one and room is needed. Keys that had a request since the hand last
// passed are kept while there may be more keys, because they would only come back.
type table[S any] struct {
	seed   maphash.Seed
	keys   atomic.Int64
	max    int64
	shards []shard[S]
}

// A shard is a part of a table: a hash table with linear probing, and a lock.
type shard[S any] struct {
	mu sync.Mutex
	// Guarded by mu.
	slots  []slot[S] // their number is a power of two
	counts counts    // the fields up to here fill one cache line, and a known key needs no others
	used   int
	hand   int   // where to look next for a state to forget
	last   int64 // the greatest ns at which a state was forgotten
	dry    int64 // the last ns at which the neighbouring shards had nothing to forget
	tally  tableCounts
	shared slot[S]
	_      [64]byte // keeps neighbours out of each other's cache line
}

type tableCounts struct{ evicted, overflowed int64 }

type slot[S any] struct {
	id    fingerprint // 0 if the slot is free; the lowest bit is set if the key was found since the hand passed
	state S
}

// A fingerprint stands for a key. Of its lowest bits, one is 1 and the other 0.
type fingerprint uint64

const (
	occupied fingerprint = 2
	found    fingerprint = 1
)

const (
	minSlots  = 8
	handSteps = 1  // slots looked at for each new key in a shard that is more than half full
	fullSteps = 32 // slots looked at for each new key if the table is full

	// A shard that has nothing to forget then searches other shards.
	besideSteps  = 128                          // total slots looked at
	besideShards = 16                           // of others at most
	besideEvery  = int64(10 * time.Millisecond) // how long it skips them after it found nothing there
)

func newTable[S any](maxKeys int) *table[S] {
	t := &table[S]{seed: maphash.MakeSeed(), max: int64(maxKeys)}
	shards := 1
	for shards < 64*runtime.GOMAXPROCS(0) && shards < 256 && shards*minSlots < maxKeys {
		shards *= 2
	}
	t.shards = make([]shard[S], shards)
	return t
}

// lock returns the locked shard of a key, and its fingerprint.
func (t *table[S]) lock(key string) (*shard[S], fingerprint) {
	id := fingerprint(maphash.String(t.seed, key))&^found | occupied
	sh := &t.shards[t.index(id)]
	sh.mu.Lock()
	return sh, id
}

// index returns the index of the shard of id. It uses other bits than those for the place within the shard.
func (t *table[S]) index(id fingerprint) int { return int(id>>48) & (len(t.shards) - 1) }

// find returns the slot of id, or nil.
func (sh *shard[S]) find(id fingerprint) *slot[S] {
	if len(sh.slots) == 0 {
		return nil
	}
	mask := len(sh.slots) - 1
	for i := sh.home(id); ; i = (i + 1) & mask {
		s := &sh.slots[i]
		if s.id&^found == id {
			if s.id&found == 0 {
				s.id |= found
			}
			return s
		}
		if s.id == 0 {
			return nil
		}
	}
}

// home returns the index where the search for id begins.
func (sh *shard[S]) home(id fingerprint) int { return int(id>>2) & (len(sh.slots) - 1) }

// insert returns a new slot for id, after forgetting idle states among the next few slots. It returns nil if the table
// is full. The time is for last.
func (sh *shard[S]) insert(t *table[S], id fingerprint, now int64, idle func(*S) bool) *slot[S] {
	switch {
	case t.keys.Load() >= t.max:
		sh.makeRoom(t, id, now, idle)
	case sh.used > len(sh.slots)/2:
		sh.forget(t, handSteps, now, idle, true)
	}
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

// makeRoom forgets idle states among the next slots of the shard of id. If there are none, it tries the neighbouring
// shards: a small shard may be empty while the table is full.
func (sh *shard[S]) makeRoom(t *table[S], id fingerprint, now int64, idle func(*S) bool) {
	sh.forget(t, fullSteps, now, idle, false)
	if ago := now - sh.dry; t.keys.Load() < t.max || ago >= 0 && ago < besideEvery {
		return
	}
	left := besideSteps
	for i := 1; i <= min(besideShards, len(t.shards)-1) && left > 0; i++ {
		left -= t.shards[(t.index(id)+i)&(len(t.shards)-1)].tryForget(t, min(left, fullSteps), now, idle)
		if t.keys.Load() < t.max {
			return
		}
	}
	sh.dry = now
}

// tryForget locks the shard, calls forget and returns the number of slots it examined. If the lock is taken, it does
// nothing, because the caller holds another lock.
func (sh *shard[S]) tryForget(t *table[S], steps int, now int64, idle func(*S) bool) int {
	if !sh.mu.TryLock() {
		return 0
	}
	defer sh.mu.Unlock()
	if sh.used == 0 {
		return 0
	}
	sh.forget(t, steps, now, idle, false)
	return min(steps, len(sh.slots))
}

// place returns the free slot where id belongs.
func (sh *shard[S]) place(id fingerprint) *slot[S] {
	i := sh.home(id)
	for sh.slots[i].id != 0 {
		i = (i + 1) & (len(sh.slots) - 1)
	}
	return &sh.slots[i]
}

func (sh *shard[S]) resize(size int) {
	old := sh.slots
	sh.slots = make([]slot[S], size)
	sh.hand = 0
	for i := range old {
		if old[i].id != 0 {
			*sh.place(old[i].id) = old[i]
		}
	}
}

// forget frees those of the next slots whose states are idle. If recently found keys are kept, it skips them.
func (sh *shard[S]) forget(t *table[S], steps int, now int64, idle func(*S) bool, keepFound bool) {
	for range min(steps, len(sh.slots)) {
		sh.hand &= len(sh.slots) - 1
		s := &sh.slots[sh.hand]
		kept := keepFound && s.id&found != 0
		if s.id &^= found; s.id == 0 || kept || !idle(&s.state) {
			sh.hand++
			continue
		}
		sh.free(sh.hand) // which may move another into the slot, to be looked at next
		sh.used--
		t.keys.Add(-1)
		sh.tally.evicted++
		sh.last = max(sh.last, now)
	}
}

// free empties slot i and moves up the slots that could no longer be found.
func (sh *shard[S]) free(i int) {
	mask := len(sh.slots) - 1
	for j := (i + 1) & mask; sh.slots[j].id != 0; j = (j + 1) & mask {
		// A state whose home is behind i is found without passing i.
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
			if sh.slots[j].id != 0 {
				f(&sh.slots[j].state)
			}
		}
		f(&sh.shared.state)
	}
}
