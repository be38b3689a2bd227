package breaker

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/isnil"
	"github.com/spillway-go/spillway/internal/name"
	"github.com/spillway-go/spillway/stats"
)

// maxKeys bounds MaxKeys.
const maxKeys = 1 << 24

// A Member is a policy that a [Keyed] can keep: a *[Breaker] or a *[Throttle].
type Member interface {
	spillway.Policy
	// idle reports whether the policy can be forgotten without loss: it has nothing in flight, and would decide like a
	// new one.
	idle(now time.Time) bool
	window() time.Duration
}

// KeyedOptions tune a [Keyed]. The zero KeyedOptions are the defaults.
type KeyedOptions struct {
	// Name is the name of the Keyed in Stats: printable ASCII, at most 64 bytes. If Name is empty, it is "breakers".
	// Rejections carry the name that New gives to a policy; do not build it from the key, because names become metric
	// labels. It cannot change later.
	Name string
	// New builds the policy of a key, once per key and without any lock held. It must not ask the Keyed about the same
	// key. Requests of a key whose New fails go to the shared policy, which is built by New("") in [NewKeyed].
	// If New is nil, each key gets a [Breaker] with the default options and the Name of the Keyed.
	New func(key string) (Member, error)
	// MaxKeys is how many keys have a policy of their own at once, at most 2^24. If MaxKeys is 0, it is 1024.
	MaxKeys int
	// MaxOpen is the share of keys, in (0, 1], whose breakers may be open or half-open at once because of outcomes. One
	// breaker may always open. Other breakers stay closed even if a rule is reached, and count in [Stats.Vetoed]. So a
	// local fault, such as a lost network, does not open all breakers. If MaxOpen is 0, all may open.
	MaxOpen float64
}

// A Keyed is a [spillway.Policy] that keeps a policy for each [spillway.Request.Key].
//
// It holds at most [KeyedOptions.MaxKeys] keys. When it is full, it forgets idle keys. A closed key is idle if it has
// no failure in the window, nothing in flight, and no request for a window. An open key is idle if it had no request
// for ten times MaxOpen after the open time ended. If no key is idle, new keys share one policy, which also serves
// requests without a key. So a client that invents keys can neither make the Keyed grow nor make it forget a failing
// key.
//
// It is made by [NewKeyed]; the zero Keyed denies everything. It is safe for concurrent use, owns no goroutine and needs no
// Close. Finding a key takes no lock.
type Keyed struct {
	base    base
	opts    atomic.Pointer[KeyedOptions]
	shared  Member
	seeds   [2]maphash.Seed
	shards  []shard
	keys    atomic.Int64
	open    atomic.Int64  // members that count against MaxOpen
	retryAt atomic.Int64  // when to look for idle keys again
	nextGen atomic.Uint32 // the first generation of new members

	openings   openings // of all members
	overflowed stats.Counter
	evicted    atomic.Int64
	failed     atomic.Int64

	mu sync.Mutex // taken to add and forget keys
}

// A shard holds a part of the keys. Its map is replaced, never changed, so that readers need no lock.
type shard struct {
	members atomic.Pointer[map[string]*entry]
}

// An entry is the place of one key.
type entry struct {
	once   sync.Once
	member Member      // nil if New failed
	built  atomic.Bool // member may be read without once
	used   atomic.Int64
	dead   atomic.Bool
}

// NewKeyed returns an empty Keyed with the given options; nil means the defaults. It returns an error that names the
// invalid field, or comes from New.
func NewKeyed(o *KeyedOptions) (*Keyed, error) {
	r := &Keyed{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	if o == nil {
		o = &KeyedOptions{}
	}
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	r.opts.Store(&opts)
	shared, err := opts.New("")
	if err != nil {
		return nil, fmt.Errorf("breaker: Keyed: New: %w", err)
	}
	if isnil.Is(shared) {
		return nil, errors.New("breaker: Keyed: New: returned nil")
	}
	r.shared = shared
	r.shards = make([]shard, 1<<min(bits.Len(uint(opts.MaxKeys/32)), 16))
	for i := range r.shards {
		r.shards[i].members.Store(&map[string]*entry{})
	}
	r.retryAt.Store(int64(longAgo))
	return r, nil
}

// withDefaults returns o with every zero field set to its default, or an error that names the invalid field.
func (o KeyedOptions) withDefaults() (KeyedOptions, error) {
	var err error
	if o.Name, err = name.Or("breaker: Keyed", o.Name, "breakers"); err != nil {
		return o, err //nolint:wrapcheck // it names the field
	}
	if o.New == nil {
		members := Options{Name: o.Name}
		o.New = func(string) (Member, error) { return New(&members) }
	}
	o.MaxKeys = cmp.Or(o.MaxKeys, 1024)
	switch {
	case o.MaxKeys < 1 || o.MaxKeys > maxKeys:
		return o, fmt.Errorf("breaker: Keyed: MaxKeys must be in 1..%d, got %d", maxKeys, o.MaxKeys)
	case !isShare(o.MaxOpen) && o.MaxOpen != 0:
		return o, fmt.Errorf("breaker: Keyed: MaxOpen must be in (0, 1] or 0, got %v", o.MaxOpen)
	}
	return o, nil
}

// Options returns the current options, with every default filled in. Change them and pass them to [Keyed.Tune]. The
// zero Keyed has none.
func (r *Keyed) Options() KeyedOptions {
	if o := r.opts.Load(); o != nil {
		return *o
	}
	return KeyedOptions{}
}

// Tune replaces all options while requests go on: a zero field means its default, as in [NewKeyed]. Existing policies,
// including the shared one, stay as they are. New applies to later keys, and keys beyond a lower MaxKeys stay until
// they are idle. Tune returns an error that names the invalid field, and then changes nothing.
func (r *Keyed) Tune(o KeyedOptions) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	opts, err := r.Check(o)
	if err != nil {
		return err
	}
	r.opts.Store(&opts)
	return nil
}

// Check returns the options that Tune would put in force, with every default filled in, or the error of Tune. It changes
// nothing.
func (r *Keyed) Check(o KeyedOptions) (KeyedOptions, error) {
	old := r.opts.Load()
	if old == nil {
		return o, errUnmade
	}
	var err error
	if o.Name, err = name.Keep("breaker: Keyed", old.Name, o.Name); err != nil {
		return o, err //nolint:wrapcheck // it names the field
	}
	return o.withDefaults()
}

// sharedBit marks the tickets of the shared policy. Tickets of members do not use the uppermost bit.
const sharedBit spillway.Ticket = 1 << 63

// Admit asks the policy of req.Key.
func (r *Keyed) Admit(ctx context.Context, req spillway.Request) (spillway.Ticket, error) {
	if req.Key == "" || r.shared == nil {
		return r.admitShared(ctx, req)
	}
	now := r.base.instant(req.Arrived)
	e := r.find(req.Key)
	if e == nil {
		e = r.add(req.Key, now)
	}
	if e == nil || e.member == nil {
		r.overflowed.Add(1)
		return r.admitShared(ctx, req)
	}
	// The order matters: evict sets dead first, and then looks at use and calls in flight, so that one of the two
	// goroutines sees the other.
	if int64(now) > e.used.Load() {
		e.used.Store(int64(now))
	}
	t, err := e.member.Admit(ctx, req)
	if err == nil && e.dead.Load() {
		e.member.Done(req, t, spillway.Result{Outcome: spillway.Refused})
		r.overflowed.Add(1)
		return r.admitShared(ctx, req)
	}
	return t, err
}

func (r *Keyed) admitShared(ctx context.Context, req spillway.Request) (spillway.Ticket, error) {
	if r.shared == nil {
		return 0, errZero
	}
	t, err := r.shared.Admit(ctx, req)
	return t | sharedBit, err
}

// Done ends req at the policy that admitted it.
func (r *Keyed) Done(req spillway.Request, t spillway.Ticket, res spillway.Result) {
	if r.shared == nil {
		return
	}
	if t&sharedBit != 0 {
		r.shared.Done(req, t&^sharedBit, res)
		return
	}
	if e := r.find(req.Key); e != nil && e.member != nil {
		e.member.Done(req, t, res)
	}
}

// find returns the entry of a key, built, or nil.
func (r *Keyed) find(key string) *entry {
	members := *r.shard(key).members.Load()
	var e *entry
	if len(key) <= maxKeyLen {
		e = members[key]
	} else {
		var name longName
		e = members[string(r.longName(key, &name))] // which does not allocate
	}
	if e != nil {
		e.once.Do(func() { r.build(e, key) })
	}
	return e
}

func (r *Keyed) shard(key string) *shard {
	return &r.shards[maphash.String(r.seeds[0], key)&uint64(len(r.shards)-1)]
}

// A key of more than maxKeyLen bytes is stored as its first nameLen bytes and a hash. This bounds the memory that
// clients can use.
const (
	maxKeyLen = 128
	nameLen   = 64
)

type longName [nameLen + 1 + 32]byte

// longName returns the name of a long key, in buf. Two keys of the same name cannot be found without the seeds.
func (r *Keyed) longName(key string, buf *longName) []byte {
	name := buf[:0]
	name = append(name, key[:nameLen]...)
	name = append(name, '#')
	var hash [16]byte
	for i, seed := range r.seeds {
		binary.BigEndian.PutUint64(hash[8*i:], maphash.String(seed, key))
	}
	return hex.AppendEncode(name, hash[:])
}

// name returns the stored form of a key: a copy, so that it does not keep a larger string in memory.
func (r *Keyed) name(key string) string {
	if len(key) <= maxKeyLen {
		return strings.Clone(key)
	}
	var name longName
	return string(r.longName(key, &name))
}

func (r *Keyed) build(e *entry, key string) {
	defer func() { // also if New panics
		if e.member == nil {
			r.failed.Add(1)
		}
		e.built.Store(true)
	}()
	m, err := r.opts.Load().New(key)
	if err != nil || isnil.Is(m) {
		return
	}
	if b, ok := m.(*Breaker); ok {
		b.join(r)
	}
	e.member = m
}

// Lookup returns the policy of a key, if it has one of its own. For the empty key it returns the shared policy, which
// serves requests without a key and keys without their own policy. Lookup builds no policy.
func (r *Keyed) Lookup(key string) (Member, bool) {
	if r.shared == nil {
		return nil, false
	}
	if key == "" {
		return r.shared, true
	}
	e := r.find(key)
	if e == nil || e.member == nil {
		return nil, false
	}
	return e.member, true
}

// All returns the keys and their policies, in no particular order. Keys that come or go meanwhile may be missing. A key of more
// than 128 bytes appears as its first 64, a "#" and a hash.
func (r *Keyed) All() iter.Seq2[string, Member] {
	return func(yield func(string, Member) bool) {
		for i := range r.shards {
			for name, e := range *r.shards[i].members.Load() {
				if e.built.Load() && e.member != nil && !yield(name, e.member) {
					return
				}
			}
		}
	}
}

// KeyedStats is a snapshot of a [Keyed].
type KeyedStats struct {
	Name string // KeyedOptions.Name
	Keys int64  // that have a policy of their own
	Open int64  // how many of these are breakers that outcomes have opened and not closed yet

	// Since the Keyed was made:
	Openings   map[string]int64 // of breakers of a key, by the reasons of an Event; nil if there were none
	Overflowed int64            // requests with a key that the shared policy decided
	Evicted    int64            // idle keys forgotten
	Failed     int64            // calls of New that returned no policy, or panicked
}

// Stats returns a snapshot of the figures. It may be called at any time.
func (r *Keyed) Stats() KeyedStats {
	return KeyedStats{
		Name: r.Options().Name,
		Keys: r.keys.Load(), Open: r.open.Load(), Openings: r.openings.byReason(),
		Overflowed: r.overflowed.Value(), Evicted: r.evicted.Load(), Failed: r.failed.Load(),
	}
}
