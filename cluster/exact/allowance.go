package exact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
)

// An Allowance is a count per window and key, such as 100 000 per day, that asks Redis for many tokens at once. It
// takes a chunk of a [Limit] and spends it locally. Redis never gives out more than the limit, so all processes
// together never exceed it in any window. When Redis loses its data, a window starts over, as for the Limit.
//
// A chunk grows with the rate of use, and shrinks as the window is used up, down to one token at its end. A process
// gives back the tokens that it has not spent within TTL when it next asks, or at [Allowance.Close]. Until then other processes
// cannot use them: at most one chunk for each process and key. A process that dies loses its chunk. Requests are served in the
// order of their arrival: for fair shares of a rate use a lease.Limit.
//
// Admit may block: one request in each chunk waits for Redis. Requests that arrive meanwhile take their
// tokens from the Limit themselves, and none waits for a lock. It is made by [NewAllowance] and owns no goroutine. All
// methods may be called concurrently. The zero Allowance denies everything.
type Allowance struct {
	limit *Limit
	chunk int64
	nodes int64
	term  time.Duration
	max   int
	base  time.Time

	mu     sync.RWMutex
	closed bool              // guarded by mu
	keys   map[string]*chunk // guarded by mu
}

// AllowanceOptions tune an [Allowance]. Limit and Nodes are required.
type AllowanceOptions struct {
	// Limit is the source of the tokens. It has one Rule, a [FixedWindow].
	Limit *Limit
	// Nodes is the number of processes that share the Limit, at most 65536: a chunk is at most a part of the remaining
	// tokens, so that no process takes all of them.
	Nodes int
	// Chunk is the greatest number of tokens fetched at once. If Chunk is 0, it is 1024.
	Chunk int
	// TTL is how long a process keeps fetched tokens, at least 10 ms and at most 1 h. If TTL is 0, it is 10 s.
	TTL time.Duration
	// MaxKeys is the greatest number of keys that are kept, each in about 150 bytes, at most 2^24. Requests of further
	// keys go to the Limit one by one. If MaxKeys is 0, it is 65536.
	MaxKeys int
}

// NewAllowance returns an Allowance without asking Redis. The error names the invalid field.
func NewAllowance(o *AllowanceOptions) (*Allowance, error) {
	var opts AllowanceOptions
	if o != nil {
		opts = *o
	}
	opts.Chunk, opts.TTL = cmp.Or(opts.Chunk, 1024), cmp.Or(opts.TTL, 10*time.Second)
	opts.MaxKeys = cmp.Or(opts.MaxKeys, defaultKeys)
	switch {
	case opts.Limit == nil:
		return nil, errors.New("exact: Allowance: Limit must be set, got nil")
	case len(opts.Limit.rules()) != 1 || opts.Limit.rules()[0].kind != windowKind && opts.Limit.rules()[0].kind != calendarKind:
		return nil, fmt.Errorf("exact: Allowance: Limit must have one FixedWindow as its Rules, got %v", opts.Limit.rules())
	case opts.Nodes < 1 || opts.Nodes > maxNodes:
		return nil, fmt.Errorf("exact: Allowance: Nodes must be in 1..%d, got %d", maxNodes, opts.Nodes)
	case opts.Chunk < 1 || int64(opts.Chunk) > maxTokens:
		return nil, fmt.Errorf("exact: Allowance: Chunk must be in 1..2^52, got %d", opts.Chunk)
	case opts.TTL < 10*time.Millisecond || opts.TTL > time.Hour:
		return nil, fmt.Errorf("exact: Allowance: TTL must be in 10ms..1h, got %v", opts.TTL)
	case opts.MaxKeys < 1 || opts.MaxKeys > maxKeys:
		return nil, fmt.Errorf("exact: Allowance: MaxKeys must be in 1..%d, got %d", maxKeys, opts.MaxKeys)
	}
	return &Allowance{
		limit: opts.Limit, chunk: int64(opts.Chunk), nodes: int64(opts.Nodes), term: opts.TTL, max: opts.MaxKeys,
		base: time.Now(), keys: make(map[string]*chunk),
	}, nil
}

// Admit takes the cost of r from its Key: from the chunk, without blocking, or else from Redis, as [Limit.Admit] does.
func (a *Allowance) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	if a.limit == nil {
		return 0, call.ErrZero
	}
	c, n := a.find(r.Key), int64(max(r.Cost, 1))
	if c == nil || r.Cost < 0 || n > a.chunk {
		return a.limit.Admit(ctx, r)
	}
	now := int64(time.Since(a.base))
	if b := c.now.Load(); b != nil && b.take(now, n) {
		return b.ticket(), nil
	}
	if !c.fetching.CompareAndSwap(false, true) {
		return a.limit.Admit(ctx, r)
	}
	defer c.fetching.Store(false)
	if left, b := c.close(); left > 0 {
		_ = a.limit.giveBack(ctx, r.Key, left, left, b.stamp) // if Redis is lost, so are they, until the window ends
	}
	res, err := a.limit.TakeUpTo(ctx, r.Key, int(c.next(now, n, a.chunk, a.term)))
	if err != nil {
		return 0, err
	}
	if res.Taken < n {
		_ = a.limit.Refund(ctx, r.Key, &res, int(res.Taken)) // as above
		return 0, a.limit.rejection(&res)
	}
	if res.Source != cluster.FromRedis { // the fallback decides about each request
		_ = a.limit.Refund(ctx, r.Key, &res, int(res.Taken-n)) // never fails here
		return ticketOf(&res), nil
	}
	b := c.fill(now, n, &res, a)
	if a.isClosed() { // Close did not wait
		if left, _ := c.close(); left > 0 {
			_ = a.limit.giveBack(ctx, r.Key, left, left, b.stamp)
		}
	}
	return b.ticket(), nil
}

func (a *Allowance) isClosed() bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.closed
}

// find returns the chunk of a key, or nil if there is no room.
func (a *Allowance) find(key string) *chunk {
	key = call.ShortKey(key)
	a.mu.RLock()
	c, full := a.keys[key], a.closed || len(a.keys) >= a.max
	a.mu.RUnlock()
	if c != nil || full {
		return c
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	if c = a.keys[key]; c == nil {
		c = new(chunk)
		a.keys[key] = c
	}
	return c
}

// Done gives the tokens of r back if r was [spillway.Refused]: to their chunk, or with a call of Redis to their window,
// if that has not ended.
func (a *Allowance) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	if res.Outcome != spillway.Refused || a.limit == nil {
		return
	}
	if t&fromBatch != fromBatch {
		a.limit.Done(r, t, res)
		return
	}
	n, stamp := int64(max(r.Cost, 1)), int64(t>>ticketShift)
	if b := a.batch(r.Key); b != nil && b.stamp == stamp && int64(time.Since(a.base)) < b.until && b.add(n) {
		return
	}
	if stamp > 0 {
		_ = a.limit.giveBack(context.Background(), r.Key, n, n, stamp) // if Redis is lost, so are they, until the window ends
	}
}

// batch returns the last fetched tokens of a key, or nil.
func (a *Allowance) batch(key string) *batch {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if c := a.keys[call.ShortKey(key)]; c != nil {
		return c.now.Load()
	}
	return nil
}

// Queues returns true: Admit may block.
func (a *Allowance) Queues() bool { return true }

// Quota returns the remaining tokens of the key of r at now, as [Limit.Quota] does, with the tokens that this process holds.
func (a *Allowance) Quota(now time.Time, r spillway.Request) spillway.Quota {
	if a.limit == nil {
		return spillway.Quota{}
	}
	q := a.limit.Quota(now, r)
	if b := a.batch(r.Key); b != nil && int64(now.Sub(a.base)) < b.until {
		q.Remaining = min(q.Remaining+max(b.left.Load(), 0), q.Limit)
	}
	return q
}

// Sweep gives back fetched tokens that were not spent in time, and forgets their keys. A process with many keys should
// call it now and then. It stops when ctx ends. The error counts the tokens that were not given back; other processes cannot
// use them until their windows end.
func (a *Allowance) Sweep(ctx context.Context) error {
	if a.limit == nil {
		return nil
	}
	return a.sweep(ctx, int64(time.Since(a.base)))
}

// Close gives back all fetched tokens that were not spent, in pipelines. The error counts those that it could not give
// back, and says why. Later requests go to the Limit one by one. Closing twice is harmless.
func (a *Allowance) Close() error {
	if a.limit == nil {
		return nil
	}
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	return a.sweep(context.Background(), math.MaxInt64)
}

func (a *Allowance) sweep(ctx context.Context, now int64) error {
	a.mu.Lock()
	var back []refund
	for key, c := range a.keys {
		if b := c.now.Load(); (b == nil || b.until <= now) && c.fetching.CompareAndSwap(false, true) {
			if left, b := c.close(); left > 0 { // a request that holds the chunk finds it being fetched, and asks the Limit
				back = append(back, refund{key, left, b.stamp})
			}
			delete(a.keys, key)
		}
	}
	a.mu.Unlock()
	return a.limit.giveAllBack(ctx, back)
}

var _ spillway.Policy = (*Allowance)(nil)
