package limiter

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/spillway-go/spillway"
)

// An Order says who is next in a [Queue] among those of the same priority.
type Order uint8

// The orders.
const (
	// FIFO serves the first to come first. It is fair, and in an overload that lasts everybody waits as long as anybody.
	FIFO Order = iota
	// LIFO serves the last to come first: in an overload some are served without delay, and the others not at all.
	LIFO
	// Adaptive is FIFO until the queue has not been empty for [QueueOptions.Interval]. Then it stands: something keeps
	// it from draining, and it is LIFO, and who comes now waits for [QueueOptions.Target] at most. This is adaptive LIFO
	// with controlled delay, by Facebook after CoDel: bursts are served in order, standing queues do not delay everybody.
	Adaptive
	numOrders
)

// The defaults of [QueueOptions].
const (
	DefaultQueueWait     = time.Second
	DefaultQueueTarget   = 5 * time.Millisecond
	DefaultQueueInterval = 100 * time.Millisecond
)

// A Queue lets at most Limit requests run at once, and has a bounded number of others wait for their turn: those of the
// highest priority first, and among equals by [Order]. When as many wait as may, a request takes the place of one of lower
// priority, or is refused. A request of cost n takes n places when it runs; while it is its turn and they are not free, nobody
// of its priority passes it. A [Concurrency] has nobody wait.
//
// A Queue is a [spillway.Queuer]: its Admit blocks, and the time it takes does not count as latency for the policies behind
// it. It owns no goroutine and needs no Close. It is made by [NewQueue]; the zero Queue denies everything. All methods may be
// called concurrently.
type Queue struct {
	clock  clock
	reject *rejections // nil in the zero value
	other  map[string]*spillway.Rejection

	mu sync.Mutex
	// Guarded by mu.
	list   waitlist
	counts queueCounts
}

type queueCounts struct{ admitted, waited, full, late, ousted, impossible, cancelled int64 }

// QueueOptions tune a [Queue]. Limit and MaxQueue have to be set.
type QueueOptions struct {
	// Limit is how many requests may run at once, at least 1.
	Limit int
	// MaxQueue is how many others may wait, at least 1.
	MaxQueue int
	// MaxWait is how long one may wait. If MaxWait is 0, it is one second.
	MaxWait time.Duration
	// Order is who is next among those of the same priority. The zero Order is FIFO.
	Order Order
	// Target is how long one may wait who comes while an Adaptive queue stands. If Target is 0, it is 5 ms.
	Target time.Duration
	// Interval is how long an Adaptive queue must not have been empty to stand. If Interval is 0, it is 100 ms.
	Interval time.Duration
	// Name is what rejections and metrics call the limit, in printable ASCII. If Name is empty, it is "queue".
	Name string
}

// QueueStats is a snapshot of a [Queue].
type QueueStats struct {
	Name     string
	Limit    int64
	InFlight int64 // places taken; above Limit for a while after that was lowered
	Waiting  int64 // requests in the queue

	// Requests that got their places, and how many of them had to wait.
	Admitted, Waited int64
	// Requests that did not: as many waited as may; it waited too long; it gave its place to one of higher priority; it
	// cost more than the limit; its context ended while it waited.
	Full, Late, Ousted, Impossible, Cancelled int64
}

// NewQueue returns a Queue with nothing in flight. The error names the field that cannot be right.
func NewQueue(o *QueueOptions) (*Queue, error) {
	var opts QueueOptions
	if o != nil {
		opts = *o
	}
	setDefault(&opts.MaxWait, DefaultQueueWait)
	setDefault(&opts.Target, DefaultQueueTarget)
	setDefault(&opts.Interval, DefaultQueueInterval)
	if opts.Name == "" {
		opts.Name = "queue"
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	q := &Queue{
		clock:  newClock(),
		reject: newRejections(opts.Name, ReasonLimit, false),
		other:  map[string]*spillway.Rejection{},
		list: waitlist{
			limit: int64(opts.Limit), maxQueue: opts.MaxQueue, order: opts.Order,
			maxWait: int64(opts.MaxWait), target: int64(opts.Target), interval: int64(opts.Interval),
		},
	}
	for _, reason := range []string{ReasonFull, ReasonWait, ReasonOusted} {
		rej := q.reject.build(reason, 0)
		q.other[reason] = &rej
	}
	return q, nil
}

func setDefault(d *time.Duration, to time.Duration) {
	if *d == 0 {
		*d = to
	}
}

func (o *QueueOptions) validate() error {
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"MaxWait", o.MaxWait}, {"Target", o.Target}, {"Interval", o.Interval}} {
		if d.d < 0 || d.d > horizon {
			return fmt.Errorf("limiter: Queue: %s must be in 0..%v, got %v", d.name, time.Duration(horizon), d.d)
		}
	}
	switch {
	case o.Limit < 1 || int64(o.Limit) > math.MaxInt64/2:
		return fmt.Errorf("limiter: Queue: Limit must be at least 1, got %d", o.Limit)
	case o.MaxQueue < 1:
		return fmt.Errorf("limiter: Queue: MaxQueue must be at least 1, got %d", o.MaxQueue)
	case o.Order >= numOrders:
		return fmt.Errorf("limiter: Queue: Order must be one of the constants, got %d", o.Order)
	}
	return validateName("Queue", o.Name)
}

// Queues does nothing: it marks that Admit may block.
func (q *Queue) Queues() {}

// Admit takes as many places as r costs, and waits for them if need be. It returns a *[spillway.Rejection] at once if as many
// wait as may, or later if r has waited for too long or another takes its place in the queue; or ctx.Err() if ctx ends first.
func (q *Queue) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	return 0, q.enter(ctx, q.clock.ns(r.Arrived), costOf(&r), r.Priority)
}

// Done gives the places of r back, however it went, and whoever is next gets them.
func (q *Queue) Done(r spillway.Request, _ spillway.Ticket, res spillway.Result) {
	q.release(q.clock.ns(r.Arrived)+int64(min(res.Latency, horizon)), costOf(&r))
}

// TryAcquire takes one place if it is free and nobody waits for it, and reports whether it was. The caller gives it back
// with Release(1).
func (q *Queue) TryAcquire() bool {
	now := q.clock.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.reject == nil || !q.list.tryNow(now, 1, spillway.Normal) {
		return false
	}
	q.counts.admitted++
	return true
}

// Acquire takes n places with a priority, to be given back with Release(n), and waits for them as Admit does. If n is
// negative or greater than the limit, the error is a *[CostError].
func (q *Queue) Acquire(ctx context.Context, n int, p spillway.Priority) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := q.enter(ctx, q.clock.ns(readClock()), int64(n), p)
	if isMisuse(err) {
		return &CostError{Limit: q.reject.policy, Cost: n, Max: int(q.Stats().Limit), rejection: q.reject.cost(int64(n))}
	}
	return err
}

// Release gives n places back, and whoever is next gets them. It panics if fewer are taken.
func (q *Queue) Release(n int) {
	if n < 0 {
		panic("limiter: Queue: Release of a negative number")
	}
	q.release(q.clock.now(), int64(n))
}

// SetLimit changes how many requests may run at once. It does not wait: after a decrease, what runs goes on, and nobody gets
// in until there is room; those in the queue that cost more than the new limit are refused. The error says that limit cannot
// be right, and then nothing has changed.
func (q *Queue) SetLimit(limit int) error {
	if limit < 1 || int64(limit) > math.MaxInt64/2 {
		return fmt.Errorf("limiter: Queue: Limit must be at least 1, got %d", limit)
	}
	now := q.clock.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.reject != nil {
		q.list.setLimit(now, int64(limit))
	}
	return nil
}

// Peek returns what could be taken without waiting. Nobody knows when there will be more.
func (q *Queue) Peek() State {
	q.mu.Lock()
	defer q.mu.Unlock()
	st := State{Limit: q.list.limit}
	if q.list.waiting == 0 {
		st.Remaining = max(q.list.limit-q.list.inFlight, 0)
	}
	return st
}

// Idle reports whether nothing is in flight and nobody waits.
func (q *Queue) Idle(time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.list.inFlight == 0 && q.list.waiting == 0
}

// Stats returns a snapshot. It may be called at any time.
func (q *Queue) Stats() QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := &q.counts
	s := QueueStats{
		Limit: q.list.limit, InFlight: q.list.inFlight, Waiting: int64(q.list.waiting),
		Admitted: c.admitted, Waited: c.waited, Full: c.full, Late: c.late, Ousted: c.ousted, Impossible: c.impossible, Cancelled: c.cancelled,
	}
	if q.reject != nil {
		s.Name = q.reject.policy
	}
	return s
}

var _ spillway.Queuer = (*Queue)(nil)
