package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/stats"
)

// What a [Semaphore] and a [Mutex] answer besides a [RedisError].
var (
	// ErrLeaseLost says that a lease ended before it was given back: Redis was away for too long, lost its memory, or this
	// process stood still. It is the cause of the end of [Held.Context].
	ErrLeaseLost = errors.New("cluster: lease lost")
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("cluster: closed")
)

// Bounds of the options.
const (
	minTTL, maxTTL = 50 * time.Millisecond, time.Hour
	maxPoll        = 10 * time.Second
	maxHolders     = 1 << 20
)

// A Semaphore lets at most Limit holders of a key run at once, in all processes that share a Redis. A permit is a lease: the
// Semaphore renews it at a third of its TTL, and if it cannot, it ends [Held.Context] before Redis gives the permit to
// somebody else. A holder that dies gives its permit back by not renewing it.
//
// A lock on Redis keeps holders apart as long as Redis keeps its memory and processes keep running; after a loss of memory, a
// failover, or while a holder stands still, there are more than Limit for a while. Where more may never touch something, have
// that thing check [Held.Fence].
//
// Those who wait are served in the order in which Redis heard of them, with three exceptions. With k permits free, the first
// k in the queue may take them in any order. Who is not heard of for four times Poll, such as a process that was stopped,
// loses its place, and until then a permit may lie idle for it. And a loss of Redis's memory loses the order too.
//
// As a [spillway.Policy] it is a cap on how many requests of a key run at once, whatever they cost; see [Semaphore.Admit].
//
// It is made by [NewSemaphore] and owns two goroutines, and a third once somebody has waited, until [Semaphore.Close]. All
// methods may be called concurrently.
type Semaphore struct {
	name              string
	base              string // of the keys
	node              string // 128 random bits: who this is
	ttl, guard        time.Duration
	poll              time.Duration
	maxWaiting        int
	onLoss            OnLoss
	limit             atomic.Int64
	conn              *conn
	scripts           *semScripts
	loss, held, queue *spillway.Rejection

	ctx    context.Context //nolint:containedctx // of what goes on in the background, until Close
	cancel context.CancelFunc
	done   sync.WaitGroup
	stop   chan struct{}  // closed when Close begins
	calls  sync.WaitGroup // of Acquire and TryAcquire
	serial atomic.Uint64
	counts semCounts

	listening atomic.Bool

	mu      sync.Mutex
	closed  bool
	heard   bool                     // somebody listens
	permits map[uint64]*semPermit    // by serial
	waiters map[string]chan struct{} // by token
	back    []semReturn              // on their way to Redis
	going   int                      // taken from back, and not answered yet
	wake    chan struct{}            // there is something in back
}

// SemaphoreOptions tune a [Semaphore]. Client and Limit have to be set. Processes that share a semaphore give it the same Name
// and should give it the same options.
type SemaphoreOptions struct {
	// Client leads to Redis 6.2 or later. A ClusterClient or a Ring must be made with ContextTimeoutEnabled.
	Client redis.UniversalClient
	// Name tells semaphores apart: it is part of the keys, and what rejections call the policy. If Name is empty, it is
	// "semaphore".
	Name string
	// Limit is how many may hold a permit of the same key at once, 1..1048576. Each process applies its own: while they
	// differ, the greatest decides.
	Limit int
	// TTL is for how long a lease lasts that is not renewed, and so how long a permit stays away when its holder dies:
	// 50ms..1h. If TTL is 0, it is 10 s.
	TTL time.Duration
	// Guard is how long before the end of a lease its context ends, so that the holder can stop: at least TTL/50, which
	// covers clocks that run at different speeds, and at most TTL/2. If Guard is 0, it is TTL/10.
	Guard time.Duration
	// Poll is how often those who wait ask when nobody wakes them, and how the others know that they still wait: 1ms..10s.
	// If Poll is 0, it is TTL/20 within 20ms..500ms.
	Poll time.Duration
	// MaxWaiting is how many may wait for the same key, in all processes together. If MaxWaiting is 0, it is 10000; if
	// it is negative, nobody waits.
	MaxWaiting int
	// OnLoss is what [Semaphore.Admit] does with requests about which Redis gives no answer: [Open] lets them in, and
	// [Closed] refuses them with [ReasonLost]. If OnLoss is 0, it is Closed. Acquire and TryAcquire return the error.
	OnLoss OnLoss
	// Timeout bounds each call of Redis, 1ms..1m. If Timeout is 0, it is [DefaultTimeout].
	Timeout time.Duration
	// Breaker keeps calls from a Redis that does not answer. If Breaker is nil, it opens after 5 failures in a row, at
	// first for at most TTL/24 and at most 250ms, later for up to eight times that.
	Breaker *breaker.Options
}

// SemaphoreStats is a snapshot of what one [Semaphore] has seen, which is one process's part. [Semaphore.Peek] asks Redis.
type SemaphoreStats struct {
	Name      string
	Limit     int64
	Held      int   // permits held by this process
	Waiting   int   // calls of Acquire that wait in this process
	Returning int   // permits given back that Redis has not heard of yet
	Listening bool  // somebody is woken by messages; otherwise those who wait poll
	Acquired  int64 // permits got
	Refused   int64 // answers that there is no room
	Lost      int64 // leases that ended before they were given back
	Unknown   int64 // calls that Redis did not answer
	Open      int64 // requests let in without a permit, since OnLoss is Open
	Dropped   int64 // permits that come back by their TTL alone, since Redis could not be told
}

type semCounts struct {
	acquired, refused, lost, unknown, open, dropped stats.Counter
}

// NewSemaphore returns a Semaphore, and does not touch the network. The error names the option that cannot be right. The
// caller closes it.
func NewSemaphore(o *SemaphoreOptions) (*Semaphore, error) {
	return newSemaphore("Semaphore", "sem", o)
}

func newSemaphore(kind, space string, o *SemaphoreOptions) (*Semaphore, error) {
	var opts SemaphoreOptions
	if o != nil {
		opts = *o
	}
	opts.fill(kind)
	if err := opts.validate(kind); err != nil {
		return nil, err
	}
	c, err := newConn(connOptions{kind: kind, client: opts.Client, timeout: opts.Timeout, breaker: opts.Breaker})
	if err != nil {
		return nil, err
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	s := &Semaphore{
		name: opts.Name, base: "spillway:" + space + ":{" + escapeTag(opts.Name, true) + ":",
		node: base64.RawURLEncoding.EncodeToString(id[:]),
		ttl:  opts.TTL, guard: opts.Guard, poll: opts.Poll, maxWaiting: max(opts.MaxWaiting, 0), onLoss: opts.OnLoss,
		conn: c, scripts: newSemScripts(clockLua),
		loss:    &spillway.Rejection{Policy: opts.Name, Reason: ReasonLost},
		held:    &spillway.Rejection{Policy: opts.Name, Reason: limiter.ReasonLimit},
		queue:   &spillway.Rejection{Policy: opts.Name, Reason: limiter.ReasonFull},
		permits: map[uint64]*semPermit{}, waiters: map[string]chan struct{}{}, wake: make(chan struct{}, 1),
		stop: make(chan struct{}),
	}
	s.limit.Store(int64(opts.Limit))
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.done.Go(s.renewLoop)
	s.done.Go(s.returnLoop)
	return s, nil
}

func (o *SemaphoreOptions) fill(kind string) {
	o.Name = cmp.Or(o.Name, strings.ToLower(kind))
	o.TTL = cmp.Or(o.TTL, 10*time.Second)
	o.Guard = cmp.Or(o.Guard, o.TTL/10)
	o.Poll = cmp.Or(o.Poll, min(max(o.TTL/20, 20*time.Millisecond), 500*time.Millisecond))
	o.MaxWaiting = cmp.Or(o.MaxWaiting, 10000)
	o.OnLoss = cmp.Or(o.OnLoss, Closed)
	if o.Breaker == nil && o.TTL > 0 {
		openFor := min(o.TTL/24, 250*time.Millisecond)
		o.Breaker = &breaker.Options{Consecutive: 5, OpenFor: openFor, MaxOpen: 8 * openFor, Probes: 1}
	}
}

func (o *SemaphoreOptions) validate(kind string) error {
	switch {
	case o.Limit < 1 || o.Limit > maxHolders:
		return errLimit(kind, o.Limit)
	case o.TTL < minTTL || o.TTL > maxTTL:
		return fmt.Errorf("cluster: %s: TTL must be in %v..%v, got %v", kind, minTTL, maxTTL, o.TTL)
	case o.Guard < o.TTL/50 || o.Guard > o.TTL/2:
		return fmt.Errorf("cluster: %s: Guard must be in %v..%v, TTL/50 to TTL/2, got %v", kind, o.TTL/50, o.TTL/2, o.Guard)
	case o.Poll < time.Millisecond || o.Poll > maxPoll:
		return fmt.Errorf("cluster: %s: Poll must be in 1ms..%v, got %v", kind, maxPoll, o.Poll)
	case o.OnLoss != Open && o.OnLoss != Closed:
		return fmt.Errorf("cluster: %s: OnLoss must be Open or Closed, got %v", kind, o.OnLoss)
	}
	return nil
}

func errLimit(kind string, n int) error {
	return fmt.Errorf("cluster: %s: Limit must be in 1..%d, got %d", kind, maxHolders, n)
}

// escapeTag keeps what the user calls things from ending the hash tag of a key early, and names from running into keys.
func escapeTag(text string, name bool) string {
	if !strings.ContainsAny(text, "%{}:") {
		return text
	}
	text = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D").Replace(text)
	if name {
		text = strings.ReplaceAll(text, ":", "%3A")
	}
	return text
}

// SetLimit changes how many may hold a permit at once, as far as this process decides it. It does not wait: after a decrease
// those who hold one go on, and nobody new is let in until there is room. The error says that limit cannot be right, and
// then nothing has changed.
func (s *Semaphore) SetLimit(limit int) error {
	if limit < 1 || limit > maxHolders {
		return errLimit("Semaphore", limit)
	}
	if int64(limit) > s.limit.Swap(int64(limit)) {
		s.wakeAll()
	}
	return nil
}

// Stats returns a snapshot. It does not ask Redis.
func (s *Semaphore) Stats() SemaphoreStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SemaphoreStats{
		Name: s.name, Limit: s.limit.Load(),
		Held: len(s.permits), Waiting: len(s.waiters), Returning: len(s.back) + s.going, Listening: s.listening.Load(),
		Acquired: s.counts.acquired.Value(), Refused: s.counts.refused.Value(), Lost: s.counts.lost.Value(),
		Unknown: s.counts.unknown.Value(), Open: s.counts.open.Value(), Dropped: s.counts.dropped.Value(),
	}
}

// token returns what Redis shall know one attempt by.
func (s *Semaphore) token() (uint64, string) {
	n := s.serial.Add(1)
	return n, s.node + strconv.FormatUint(n, 36)
}

// Close ends the context of every permit, gives all of them back and ends the goroutines. It takes no longer than a few calls
// of Redis may, and what Redis could not be told comes back after the TTL. Calls that wait return [ErrClosed], as do later
// ones. Closing twice is harmless.
func (s *Semaphore) Close() error {
	s.mu.Lock()
	var permits []*semPermit
	if !s.closed {
		s.closed = true
		close(s.stop)
		for _, p := range s.permits {
			permits = append(permits, p)
		}
	}
	s.mu.Unlock()
	for _, p := range permits {
		p.end(ErrClosed)
		s.giveBack(p.handBack())
	}
	s.calls.Wait() // they may have something to give back
	s.cancel()
	s.done.Wait()
	return nil
}

// enter begins a call that Close waits for, and reports whether it may go on.
func (s *Semaphore) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.calls.Add(1)
	}
	return !s.closed
}
