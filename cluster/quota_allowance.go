package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
)

// An Allowance gives out a count for each window, such as 100 000 per day and key, and asks Redis for some tokens at once
// instead of for each: it takes a chunk of a [Limit] and spends that locally. Redis never gives out more than there are, so
// neither do all processes together, in any window; when Redis loses its memory, a window begins anew, as for the Limit.
//
// A chunk grows with what is spent, and shrinks as the window is used up, down to one token at its end. What a process
// has not spent within Term it gives back when it next asks, or at [Allowance.Close]: until then others lack it, at most a
// chunk for each process and key, which a process that dies takes along. It is first come, first served: for fair shares of
// a rate take a [Quota].
//
// It is a [spillway.Queuer], since one request in each chunk waits for Redis. Others that come meanwhile take what they need
// from the Limit themselves; nobody waits for a lock. It is made by [NewAllowance] and owns no goroutine. All methods may be
// called concurrently.
type Allowance struct {
	limit *Limit
	chunk int64
	nodes int64
	term  time.Duration
	max   int
	base  time.Time

	mu   sync.RWMutex
	keys map[string]*chunk // guarded by mu
}

// AllowanceOptions tune an [Allowance]. Limit and Nodes have to be set.
type AllowanceOptions struct {
	// Limit is where the tokens come from. It has one Rule, a [FixedWindow].
	Limit *Limit
	// Nodes is how many processes share the Limit, at most 65536: a chunk is at most a part of what is left, so that nobody takes
	// it all.
	Nodes int
	// Chunk is the most tokens that are fetched at once. If Chunk is 0, it is 1024.
	Chunk int
	// Term is how long a process keeps what it has fetched, at least 10 ms and at most 1 h. If Term is 0, it is 10 s.
	Term time.Duration
	// MaxKeys bounds the keys that are kept, each in some 150 bytes, at most 2^24. Requests of others go to the Limit one by
	// one. If MaxKeys is 0, it is 65536.
	MaxKeys int
}

// A chunk is what a process has fetched of a key.
type chunk struct {
	left     atomic.Int64
	until    atomic.Int64 // ns since base when it is to be given back
	fetching atomic.Bool  // somebody asks

	// Owned by who set fetching.
	size    int64 // to fetch next
	fetched int64 // ns since base
	stamp   int64
}

// NewAllowance returns an Allowance, and does not ask Redis. The error names the field that cannot be right.
func NewAllowance(o *AllowanceOptions) (*Allowance, error) {
	var opts AllowanceOptions
	if o != nil {
		opts = *o
	}
	opts.Chunk, opts.Term = cmp.Or(opts.Chunk, 1024), cmp.Or(opts.Term, 10*time.Second)
	opts.MaxKeys = cmp.Or(opts.MaxKeys, defaultQuota)
	switch {
	case opts.Limit == nil:
		return nil, errors.New("cluster: Allowance: Limit must be set, got nil")
	case len(opts.Limit.rules()) != 1 || opts.Limit.rules()[0].kind != windowKind && opts.Limit.rules()[0].kind != calendarKind:
		return nil, fmt.Errorf("cluster: Allowance: Limit must have one FixedWindow as its Rules, got %v", opts.Limit.rules())
	case opts.Nodes < 1 || opts.Nodes > maxNodes:
		return nil, fmt.Errorf("cluster: Allowance: Nodes must be in 1..%d, got %d", maxNodes, opts.Nodes)
	case opts.Chunk < 1 || int64(opts.Chunk) > maxTokens:
		return nil, fmt.Errorf("cluster: Allowance: Chunk must be in 1..2^52, got %d", opts.Chunk)
	case opts.Term < 10*time.Millisecond || opts.Term > time.Hour:
		return nil, fmt.Errorf("cluster: Allowance: Term must be in 10ms..1h, got %v", opts.Term)
	case opts.MaxKeys < 1 || opts.MaxKeys > maxQuotaKeys:
		return nil, fmt.Errorf("cluster: Allowance: MaxKeys must be in 1..%d, got %d", maxQuotaKeys, opts.MaxKeys)
	}
	return &Allowance{
		limit: opts.Limit, chunk: int64(opts.Chunk), nodes: int64(opts.Nodes), term: opts.Term, max: opts.MaxKeys,
		base: time.Now(), keys: make(map[string]*chunk),
	}, nil
}

// Admit takes the cost of r, of its Key: from the chunk, without blocking, or else from Redis, as [Limit.Admit] does.
func (a *Allowance) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	c, n := a.find(r.Key), int64(max(r.Cost, 1))
	if c == nil || r.Cost < 0 || n > a.chunk {
		return a.limit.Admit(ctx, r)
	}
	now := int64(time.Since(a.base))
	if c.take(now, n) {
		return 0, nil
	}
	if !c.fetching.CompareAndSwap(false, true) {
		return a.limit.Admit(ctx, r)
	}
	defer c.fetching.Store(false)
	a.giveBack(ctx, r.Key, c)
	res, err := a.limit.TakeUpTo(ctx, r.Key, int(c.next(now, n, a.chunk, a.term)))
	if err != nil {
		return 0, err
	}
	if res.Taken < n {
		if res.Taken > 0 {
			_ = a.limit.giveBack(ctx, r.Key, res.Taken, res.stamp) // if Redis is lost, so are they, until the window ends
		}
		return 0, a.limit.rejection(&res)
	}
	c.fill(now, n, &res, a)
	return 0, nil
}

// take takes n tokens of a chunk that is still good.
func (c *chunk) take(now, n int64) bool {
	for now < c.until.Load() {
		left := c.left.Load()
		if left < n {
			return false
		}
		if c.left.CompareAndSwap(left, left-n) {
			return true
		}
	}
	return false
}

// next returns how many tokens to fetch: twice as many as last time if they were soon spent, half if not.
func (c *chunk) next(now, n, most int64, term time.Duration) int64 {
	if c.fetched > 0 && now-c.fetched < int64(term/4) {
		c.size *= 2
	} else {
		c.size /= 2
	}
	c.size = min(max(c.size, n), most)
	return c.size
}

// fill enters what was fetched, but for n. It is good until the window ends, by a clock that may run 2 % slow, and for a term.
func (c *chunk) fill(asked, n int64, r *Result, a *Allowance) {
	c.size = max(min(c.size, r.Remaining/(4*a.nodes)), 1)
	c.fetched, c.stamp = asked, r.stamp
	ends := cmp.Or(r.FullIn, r.NextIn)
	c.until.Store(asked + min(int64(a.term), ends.Nanoseconds()/100*98))
	c.left.Store(r.Taken - n)
}

// giveBack gives back what was not spent. The caller has set fetching.
func (a *Allowance) giveBack(ctx context.Context, key string, c *chunk) {
	c.until.Store(0)
	if left := c.left.Swap(0); left > 0 && c.stamp > 0 {
		_ = a.limit.giveBack(ctx, key, left, c.stamp) // if Redis is lost, so are they, until the window ends
	}
}

// find returns the chunk of a key, or nil if there is no room.
func (a *Allowance) find(key string) *chunk {
	a.mu.RLock()
	c, n := a.keys[key], len(a.keys)
	a.mu.RUnlock()
	if c != nil || n >= a.max {
		return c
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if c = a.keys[key]; c == nil {
		c = new(chunk)
		a.keys[key] = c
	}
	return c
}

// Done gives back what r took if it was [spillway.Refused]: to the chunk, from where it came, if that is still good.
func (a *Allowance) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	switch {
	case res.Outcome != spillway.Refused:
	case t != 0:
		a.limit.Done(r, t, res)
	default:
		if c := a.find(r.Key); c != nil && int64(time.Since(a.base)) < c.until.Load() {
			c.left.Add(int64(max(r.Cost, 1)))
		}
	}
}

// Queues does nothing: it marks that Admit may block.
func (a *Allowance) Queues() {}

// Quota returns the figures that the RateLimit header fields of HTTP are made of, as [Limit.Quota] does.
func (a *Allowance) Quota(now time.Time, r spillway.Request) (name string, limit, remaining int64, window, reset time.Duration) {
	name, limit, remaining, window, reset = a.limit.Quota(now, r)
	a.mu.RLock()
	c := a.keys[r.Key]
	a.mu.RUnlock()
	if c != nil && int64(now.Sub(a.base)) < c.until.Load() {
		remaining = min(remaining+c.left.Load(), limit)
	}
	return name, limit, remaining, window, reset
}

// Sweep gives back what was fetched and not spent in time, and forgets those keys: to be called now and then by who has many.
// It stops when ctx ends.
func (a *Allowance) Sweep(ctx context.Context) { a.sweep(ctx, int64(time.Since(a.base))) }

// Close gives back all that was fetched and not spent.
func (a *Allowance) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), a.limit.conn.timeout)
	defer cancel()
	a.sweep(ctx, math.MaxInt64)
}

func (a *Allowance) sweep(ctx context.Context, now int64) {
	a.mu.Lock()
	var stale []string
	var chunks []*chunk
	for key, c := range a.keys {
		if c.until.Load() <= now && c.fetching.CompareAndSwap(false, true) {
			stale, chunks = append(stale, key), append(chunks, c)
			delete(a.keys, key)
		}
	}
	a.mu.Unlock()
	for i, c := range chunks { // whoever holds one that was forgotten finds it being fetched, and asks the Limit
		a.giveBack(ctx, stale[i], c)
	}
}

var _ spillway.Queuer = (*Allowance)(nil)
