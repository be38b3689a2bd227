package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/isnil"
)

// A Member is a policy that a [Registry] can keep, such as a [Limiter]. Its tickets leave the uppermost bit at 0.
type Member interface {
	spillway.Policy
	// Idle reports whether the policy can be forgotten at now without loss: nothing is in flight, no request waits, and
	// it would decide like a new one.
	Idle(now time.Time) bool
}

// A Registry keeps a policy of its own for each [spillway.Request.Key]: any policy that can say when it is idle, and
// above all policies that queue. For limits that do not queue, a [Keyed] takes a tenth of the memory and time.
//
// It holds at most MaxKeys keys. When it is full, it forgets keys that are idle. If it finds none, a new key shares one
// policy with all other new keys, and with requests without a key. So a client that invents keys can neither make it
// grow nor make it forget a key in use.
//
// Admit of a Registry blocks if Admit of its members does. A Registry owns no goroutine and needs no Close, unless its
// members do. It is made by [NewRegistry]; the zero Registry denies everything. All methods may be called concurrently.
type Registry struct {
	clock  clock
	name   string
	build  func(key string) (Member, error)
	shared Member
	table  *table[registered] // nil in the zero value
	failed atomic.Int64
}

// registered is the state of one key.
type registered struct {
	member Member
	users  int // requests that are admitted or ask
}

// RegistryOptions tune a [Registry]. New is required.
type RegistryOptions struct {
	// Name is the name of the Registry in Stats: printable ASCII, at most 64 bytes. If Name is empty, it is "limits".
	// Rejections carry the name that New gives to a policy; do not build it from the key, because names become metric
	// labels.
	Name string
	// New builds the policy of a key. It may be called more than once for a key; only one result is used. No lock is
	// held. Requests of a key whose New fails, or returns nil, go to the shared policy, which is built by New("") in
	// [NewRegistry].
	New func(key string) (Member, error)
	// MaxKeys is how many keys have a policy of their own at once, at most 2^24. If MaxKeys is 0, it is 1024.
	MaxKeys int
}

// RegistryStats is a snapshot of a [Registry].
type RegistryStats struct {
	Name       string
	Keys       int64 // that have a policy of their own now
	MaxKeys    int64
	Overflowed int64 // requests with a key that the shared policy decided
	Evicted    int64 // idle keys forgotten
	Failed     int64 // calls of New that returned no policy, or panicked
}

// NewRegistry returns a Registry that knows no keys. The error names the invalid field, or comes from New.
func NewRegistry(o *RegistryOptions) (*Registry, error) {
	var opts RegistryOptions
	if o != nil {
		opts = *o
	}
	if opts.MaxKeys == 0 {
		opts.MaxKeys = 1024
	}
	name, err := named("Registry", opts.Name, "limits")
	if err != nil {
		return nil, err
	}
	switch {
	case opts.New == nil:
		return nil, errors.New("limiter: Registry: New must be set, got nil")
	case opts.MaxKeys < 1 || opts.MaxKeys > 1<<24:
		return nil, fmt.Errorf("limiter: Registry: MaxKeys must be in 1..2^24, got %d", opts.MaxKeys)
	}
	shared, err := opts.New("")
	if err != nil {
		return nil, fmt.Errorf("limiter: Registry: New: %w", err)
	}
	if isnil.Is(shared) {
		return nil, errors.New("limiter: Registry: New: returned nil")
	}
	return &Registry{clock: newClock(), name: name, build: opts.New, shared: shared, table: newTable[registered](opts.MaxKeys)}, nil
}

// Queues returns true: Admit may block.
func (g *Registry) Queues() bool { return true }

// Admit asks the policy of r.Key.
func (g *Registry) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	if g.table == nil {
		return 0, errZero
	}
	member, shared := g.use(r.Key, r.Arrived)
	t, err := member.Admit(ctx, r)
	switch {
	case shared && err == nil:
		return t | sharedBit, nil
	case !shared && err != nil:
		g.leave(r.Key)
	}
	return t, err
}

// Done reports the outcome of r to the policy of r.Key.
func (g *Registry) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	if g.table == nil {
		return
	}
	if t&sharedBit != 0 {
		g.shared.Done(r, t&^sharedBit, res)
		return
	}
	if member := g.member(r.Key); member != nil {
		member.Done(r, t, res)
		g.leave(r.Key)
	}
}

// use returns the policy of a key, or the shared one. The policy is not forgotten until leave is called.
func (g *Registry) use(key string, now time.Time) (m Member, shared bool) {
	if key == "" {
		return g.shared, true
	}
	if m := g.enter(key); m != nil {
		return m, false
	}
	built := g.buildFor(key)
	sh, id := g.table.lock(key)
	defer sh.mu.Unlock()
	s := sh.find(id)
	if s == nil && built != nil {
		s = sh.insert(g.table, id, g.clock.ns(now), func(s *registered) bool { return s.users == 0 && s.member.Idle(now) })
		if s != nil {
			s.state.member = built
		}
	}
	if s == nil {
		sh.tally.overflowed++
		return g.shared, true
	}
	s.state.users++
	return s.state.member, false
}

// buildFor returns the policy that New builds for a key, or nil.
func (g *Registry) buildFor(key string) (m Member) {
	built := false
	defer func() {
		if !built { // or panicked
			g.failed.Add(1)
		}
	}()
	m, err := g.build(key)
	if err != nil || isnil.Is(m) {
		return nil
	}
	built = true
	return m
}

// enter returns the policy of a known key and counts a user of it. For an unknown key it returns nil.
func (g *Registry) enter(key string) Member {
	sh, id := g.table.lock(key)
	defer sh.mu.Unlock()
	if s := sh.find(id); s != nil {
		s.state.users++
		return s.state.member
	}
	return nil
}

// member returns the policy of a key that is in use, or nil.
func (g *Registry) member(key string) Member {
	sh, id := g.table.lock(key)
	defer sh.mu.Unlock()
	if s := sh.find(id); s != nil {
		return s.state.member
	}
	return nil
}

// leave ends what use has begun.
func (g *Registry) leave(key string) {
	sh, id := g.table.lock(key)
	defer sh.mu.Unlock()
	if s := sh.find(id); s != nil {
		s.state.users--
	}
}

// Lookup returns the policy of a key, if it has one of its own. For the empty key it returns the shared policy, which
// serves requests without a key and keys without their own policy. Use Lookup to change the limit of a key, to read its
// Stats or to call it directly. Lookup builds no policy. The Registry may forget the key later, and then builds a new
// policy for the next request.
func (g *Registry) Lookup(key string) (Member, bool) {
	if g.table == nil {
		return nil, false
	}
	if key == "" {
		return g.shared, true
	}
	m := g.member(key)
	return m, m != nil
}

// Stats returns a snapshot. It may be called at any time.
func (g *Registry) Stats() RegistryStats {
	if g.table == nil {
		return RegistryStats{}
	}
	st := RegistryStats{Name: g.name, Keys: g.table.keys.Load(), MaxKeys: g.table.max, Failed: g.failed.Load()}
	for i := range g.table.shards {
		sh := &g.table.shards[i]
		sh.mu.Lock()
		st.Evicted += sh.tally.evicted
		st.Overflowed += sh.tally.overflowed
		sh.mu.Unlock()
	}
	return st
}

var _ spillway.Policy = (*Registry)(nil)
