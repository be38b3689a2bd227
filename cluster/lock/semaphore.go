package lock

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/internal/reason"
	"github.com/spillway-go/spillway/internal/rejections"
	"github.com/spillway-go/spillway/internal/waited"
	"github.com/spillway-go/spillway/stats"
)

// Errors of a [Semaphore], besides a [cluster.RedisError].
var (
	// ErrLeaseLost says that a lease ended before it was given back: Redis was away for too long, lost its data, or this
	// process was suspended. It is the cause of the end of [Lease.Context].
	ErrLeaseLost = errors.New("lock: lease lost")
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("lock: closed")
)

// A Semaphore lets at most Limit holders of a key run at once, in all processes that share a Redis. With a Limit of 1,
// the default, it is a mutex. A permit is a lease. The Semaphore renews it after a third of its TTL. If it cannot, it ends
// [Lease.Context] before Redis gives the permit to another holder. The permit of a holder that dies expires.
//
// A lock on Redis keeps holders apart as long as Redis keeps its memory and processes keep running. After a loss of
// memory, after a failover, or while a holder is suspended, there may be more than Limit holders for a while. If storage must
// never be written by more than that, let it check [Lease.Fence].
//
// Waiting callers are served in the order in which Redis received their requests, with three exceptions. With k permits
// free, the first k in the queue may take them in any order. A caller whose turn has come loses its place if it does not answer
// for four times Poll, for example in a stopped process; until then a permit may stay unused. And if Redis loses its memory,
// the order is lost too.
//
// As a [spillway.Policy] it caps how many requests of a key run at once, whatever their cost; see [Semaphore.Admit].
//
// It is made by [New]. It owns two goroutines, and a third once a caller has waited, until [Semaphore.Close].
// All methods may be called concurrently. The zero Semaphore denies everything.
type Semaphore struct {
	name          string
	base, channel string // of the keys, and of the channels of nodes
	node          string // 128 random bits that identify this Semaphore
	ttl, guard    time.Duration
	poll          time.Duration
	live          atomic.Pointer[Options]
	conn          *call.Conn
	renewals      *call.Conn // separate, so that callers that want permits do not delay the renewals of holders
	scripts       *scripts
	rejections    [numRefused]*spillway.Rejection

	ctx    context.Context //nolint:containedctx // of the background work, until Close
	cancel context.CancelFunc
	done   sync.WaitGroup
	stop   chan struct{}  // closed when Close begins
	calls  sync.WaitGroup // of Acquire and TryAcquire
	serial atomic.Uint64
	counts counts

	listening atomic.Bool

	mu       sync.Mutex
	closed   bool
	heard    bool                     // a goroutine listens
	permits  map[uint64]*permit       // by serial
	requests map[string]int           // permits of requests, by key
	waiters  map[string]chan struct{} // by token
	back     []handBack               // on their way to Redis
	going    int                      // taken from back and not yet answered
	wake     chan struct{}            // back is not empty
}

// Stats is a snapshot of a [Semaphore] in this process alone. [Semaphore.Peek] asks Redis about all processes.
type Stats struct {
	Name       string
	Limit      int64
	InFlight   int   // permits held by this process
	Waiting    int   // calls of Acquire that wait in this process
	Returning  int   // released permits that Redis does not know of yet
	Listening  bool  // messages wake waiting callers; otherwise they poll
	Admitted   int64 // permits acquired
	Refused    int64 // calls refused: the sum of ByReason
	ByReason   []spillway.Refusal
	ByFallback int64 // requests admitted by Fallback, without Redis
	Unanswered int64 // calls that Redis did not answer
	Lapsed     int64 // leases that ended before they were given back
	Expiring   int64 // permits that return only by their TTL, because their release did not reach Redis

	// The waits in seconds of calls of Acquire that had to wait for their permit, and of calls that were refused after a
	// wait.
	Waits, RefusedAfter stats.Distribution
}

// The indices of rejections.
const (
	refusedLimit = iota // Limit permits are held
	refusedFull         // MaxQueue callers wait
	refusedWait         // it waited for MaxWait
	refusedRedis        // Redis did not answer
	numRefused
)

type counts struct {
	admitted, lapsed, unanswered, byFallback, expiring stats.Counter
	refused                                            [numRefused]stats.Counter
	waits, refusedAfter                                recorder
}

// A recorder is a waited.Recorder with a lock.
type recorder struct {
	mu  sync.Mutex
	all waited.Recorder
}

func (w *recorder) record(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all.Record(d)
}

func (w *recorder) value() stats.Distribution {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Value()
}

// refuse counts a refusal and returns the rejection that all calls refused for that reason share.
func (s *Semaphore) refuse(why int) *spillway.Rejection {
	s.counts.refused[why].Add(1)
	return s.rejections[why]
}

// New returns a Semaphore without touching the network. The error names the invalid option. The caller closes
// it.
func New(o *Options) (*Semaphore, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	opts.fill()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	to := call.Options{Kind: "lock", Client: opts.Client, Timeout: opts.Timeout, Breaker: opts.Breaker, Flights: callersShare(opts.Client)}
	c, err := call.New(to)
	if err != nil {
		return nil, err
	}
	to.Timeout, to.Flights = max(c.Timeout, min(opts.TTL/renewTries, maxRenewal)), call.MaxLanes
	renewals, err := call.New(to)
	if err != nil {
		return nil, err
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	s := &Semaphore{
		name: opts.Name, base: opts.Prefix + ":sem:{" + escapeTag(opts.Name, true) + ":", channel: opts.Prefix + wakeChannel,
		node: base64.RawURLEncoding.EncodeToString(id[:]),
		ttl:  opts.TTL, guard: opts.Guard, poll: opts.Poll,
		conn: c, renewals: renewals, scripts: newScripts(call.Clock, opts.Prefix+wakeChannel),
		permits: map[uint64]*permit{}, requests: map[string]int{}, waiters: map[string]chan struct{}{}, wake: make(chan struct{}, 1),
		stop: make(chan struct{}),
	}
	for why, text := range [numRefused]string{rejections.Limit, rejections.Full, rejections.Wait, reason.Unavailable} {
		s.rejections[why] = &spillway.Rejection{Policy: opts.Name, Reason: text}
	}
	s.live.Store(&opts)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.done.Go(s.renewLoop)
	s.done.Go(s.returnLoop)
	return s, nil
}

// escapeTag escapes a name or key of the user, so that it cannot end the hash tag of a key early, and a name cannot run
// into a key.
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

// Options returns the options in force, with every default filled in. Change them and pass them to Tune.
func (s *Semaphore) Options() Options {
	if o := s.live.Load(); o != nil {
		return *o
	}
	return Options{}
}

// Tune changes Limit, MaxQueue, MaxWait, Fallback and Nodes, as far as this process decides them. It does not wait. A field of
// o that is 0 stands for its default. After a decrease of Limit, holders keep their permits, and no caller gets a new
// one until there is room. A call that waits keeps its MaxWait. The error names the field that is invalid, or that
// cannot change; then nothing has changed.
func (s *Semaphore) Tune(o Options) error {
	old := s.live.Load()
	o, err := s.Check(o)
	if err != nil {
		return err
	}
	s.live.Store(&o)
	if o.Limit > old.Limit {
		s.wakeAll()
	}
	return nil
}

// Check returns the options that Tune would put in force, with every default filled in, or the error of Tune. It changes nothing.
func (s *Semaphore) Check(o Options) (Options, error) {
	old := s.live.Load()
	if old == nil {
		return o, call.ErrZero
	}
	o.fill()
	if err := o.validate(); err != nil {
		return o, err
	}
	if o.Client == nil {
		return o, errors.New("lock: Tune: Client must be set, got nil")
	}
	was, is := reflect.ValueOf(*old), reflect.ValueOf(o)
	for i := range was.NumField() {
		switch name := was.Type().Field(i).Name; name {
		case "Limit", "MaxQueue", "MaxWait", "Fallback", "Nodes":
		case "Client":
			if c := was.Field(i).Elem(); c.Comparable() && !c.Equal(is.Field(i).Elem()) {
				return o, errors.New("lock: Tune: Client cannot change")
			}
		case "Breaker":
			if !reflect.DeepEqual(old.Breaker, o.Breaker) {
				return o, errors.New("lock: Tune: Breaker cannot change")
			}
		default:
			if a, b := was.Field(i).Interface(), is.Field(i).Interface(); a != b {
				return o, fmt.Errorf("lock: Tune: %s must stay %v, got %v", name, a, b)
			}
		}
	}
	return o, nil
}

// Stats returns a snapshot. It does not ask Redis.
func (s *Semaphore) Stats() Stats {
	s.mu.Lock()
	st := Stats{InFlight: len(s.permits), Waiting: len(s.waiters), Returning: len(s.back) + s.going}
	s.mu.Unlock()
	c, o := &s.counts, s.Options()
	st.Name, st.Limit, st.Listening = s.name, int64(o.Limit), s.listening.Load()
	st.Admitted, st.ByFallback, st.Unanswered = c.admitted.Value(), c.byFallback.Value(), c.unanswered.Value()
	st.Lapsed, st.Expiring = c.lapsed.Value(), c.expiring.Value()
	st.Waits, st.RefusedAfter = c.waits.value(), c.refusedAfter.value()
	for why := range c.refused {
		if n := c.refused[why].Value(); n > 0 {
			st.Refused += n
			st.ByReason = append(st.ByReason, spillway.Refusal{Policy: s.name, Reason: s.rejections[why].Reason, Count: n})
		}
	}
	return st
}

// token returns the name of one attempt in Redis.
func (s *Semaphore) token() (uint64, string) {
	n := s.serial.Add(1)
	return n, s.node + strconv.FormatUint(n, 36)
}

// Close ends the context of every permit, releases all of them and ends the goroutines. It takes no longer than a few
// calls of Redis. Permits whose release does not reach Redis expire after the TTL. Waiting and later calls return
// [ErrClosed]. Closing twice is harmless.
func (s *Semaphore) Close() error {
	if s.conn == nil {
		return nil
	}
	s.mu.Lock()
	var permits []*permit
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
		if back := p.handBack(); !back.until.IsZero() {
			s.giveBack(back)
		}
	}
	s.calls.Wait() // they may have permits to give back
	s.cancel()
	s.done.Wait()
	return nil
}

// enter begins a call that Close waits for, and reports whether it may continue.
func (s *Semaphore) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.calls.Add(1)
	}
	return !s.closed
}
