package lease

import (
	"hash/maphash"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/lease/internal/machine"
)

// A keyState is the local state of one key.
type keyState struct {
	node    *machine.Node
	local   atomic.Bool  // decisions are made by node.Bucket
	_       [64]byte     // keeps fields that decisions write out of the cache line of those that they read
	offered atomic.Int64 // tokens asked for
	_       [56]byte
	refused atomic.Int64 // tokens refused
	direct  atomic.Int64 // requests that asked Redis
	dry     atomic.Bool  // Redis refused one of them lately
	left    atomic.Int64 // tokens left in Redis at the last call
	view    atomic.Pointer[view]
	// granting is closed when the reply to the request for a first lease is in force; nil if there is no such request.
	granting atomic.Pointer[chan struct{}]
	names    []string // of the table and the marker in Redis

	// Owned by the loop.
	key      string
	set      *ruleSet      // in force for the node
	look     time.Duration // when to look at it
	place    int           // index in the heap; -1 if it is not there
	counted  int64         // offered up to the last look
	usedAt   time.Duration // when it was last seen in use
	lowSince time.Duration // since when it has not been worth a lease
	rate     float64       // tokens per second at the last look
	looked   time.Duration
}

// A view is the state of a node that other goroutines may read.
type view struct {
	machine.View
	err error
}

// table finds keys.
type table struct {
	seed   maphash.Seed
	max    int64
	count  atomic.Int64
	shards [64]shard
}

type shard struct {
	last atomic.Pointer[keyState] // found last, so that a hot key needs no lock
	_    [56]byte
	mu   sync.RWMutex
	keys map[string]*keyState // guarded by mu
	_    [64]byte             // keeps neighbours in separate cache lines
}

func (t *table) make(maxKeys int) {
	t.seed, t.max = maphash.MakeSeed(), int64(maxKeys)
	for i := range t.shards {
		t.shards[i].keys = map[string]*keyState{}
	}
}

func (t *table) shard(key string) *shard {
	return &t.shards[maphash.String(t.seed, key)%uint64(len(t.shards))]
}

func (t *table) find(key string) *keyState {
	s := t.shard(key)
	if k := s.last.Load(); k != nil && k.key == key {
		return k
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	k := s.keys[key]
	if k != nil {
		s.last.Store(k) // before forget, which removes it, can take the lock
	}
	return k
}

// key returns the state of a key, or nil if there is no room.
func (q *Limit) key(key string) *keyState {
	if k := q.known(key); k != nil {
		return k
	}
	if key = call.ShortKey(key); q.shared {
		key = ""
	}
	if q.keys.count.Load() >= q.keys.max {
		return nil
	}
	s := q.keys.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.keys[key]; k != nil {
		return k
	}
	k := q.newKey(key)
	s.keys[key] = k
	q.keys.count.Add(1)
	q.fresh.add(k)
	return k
}

// known returns the state of a key, or nil if it has none.
func (q *Limit) known(key string) *keyState {
	if q.reject == nil { // the zero Limit
		return nil
	}
	if key = call.ShortKey(key); q.shared {
		key = ""
	}
	return q.keys.find(key)
}

func (q *Limit) newKey(key string) *keyState {
	now, set := q.now(), q.limit.Load()
	rng := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	k := &keyState{
		key: key, names: q.names.of(key), place: -1, look: now + set.cfg.Interval/4, usedAt: now, lowSince: now, looked: now,
		set: set, node: machine.NewNode(&set.cfg, q.id, now, rng),
	}
	k.node.SetNodes(now, int(q.nodes.Load()))
	k.view.Store(&view{View: k.node.View()})
	return k
}

// forget removes a key that has not been used for a while.
func (q *Limit) forget(k *keyState) {
	s := q.keys.shard(k.key)
	s.mu.Lock()
	delete(s.keys, k.key)
	s.last.CompareAndSwap(k, nil)
	s.mu.Unlock()
	q.keys.count.Add(-1)
	q.tally.offered.Add(k.offered.Load())
	q.tally.refused.Add(k.refused.Load())
}

// freshKeys are keys that the loop has to look at now.
type freshKeys struct {
	wake chan struct{}
	mu   sync.Mutex
	keys []*keyState // guarded by mu
}

func (f *freshKeys) add(k *keyState) {
	f.mu.Lock()
	f.keys = append(f.keys, k)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *freshKeys) take() []*keyState {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys := f.keys
	f.keys = nil
	return keys
}

// keyNames makes the names of keys in Redis.
type keyNames struct {
	table, marker string
	tags          []int32 // for each slot of a cluster, a number that is kept there
	perKey        bool    // the marker is in the slot of the table
}

const clusterSlots = 16384

func newKeyNames(o *Options) keyNames {
	n := keyNames{table: o.Prefix + ":{" + o.Name + ":", marker: o.Prefix + ":" + o.Name + ":leases"}
	switch o.Client.(type) {
	case *redis.ClusterClient:
		n.tags = slotTags()
	case *redis.Ring:
		n.perKey = true
	}
	return n
}

// of returns the names of the table and of the marker. The marker is missing if the server has lost its data.
func (n *keyNames) of(key string) []string {
	key = call.ShortKey(key)
	table := n.table + key + "}:lease"
	switch {
	case n.perKey:
		return []string{table, n.table + key + "}:leases"}
	case n.tags != nil:
		return []string{table, n.marker + ":{" + strconv.Itoa(int(n.tags[slotOf(n.tag(key))])) + "}"}
	}
	return []string{table, n.marker}
}

// tag returns the part that selects the slot of a table: the text between the first brace and the next closing one.
func (n *keyNames) tag(key string) string {
	text := n.table[len(n.table)-len(n.name()):] + key
	for i := range len(text) {
		if text[i] == '}' {
			return text[:i]
		}
	}
	return text
}

// name returns the part of table behind the brace.
func (n *keyNames) name() string {
	for i := range len(n.table) {
		if n.table[i] == '{' {
			return n.table[i+1:]
		}
	}
	return n.table
}

// slotOf returns the slot of a hash tag: CRC-16/XMODEM, as Redis Cluster specifies.
func slotOf(tag string) int {
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return int(crc) % clusterSlots
}

// slotTags returns for each slot a number whose decimal form has that slot as a hash tag.
func slotTags() []int32 {
	tags := make([]int32, clusterSlots)
	for left, i := clusterSlots, int32(1); left > 0; i++ {
		if slot := slotOf(strconv.Itoa(int(i))); tags[slot] == 0 {
			tags[slot] = i
			left--
		}
	}
	return tags
}
