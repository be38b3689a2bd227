package limiter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/rejections"
	"github.com/spillway-go/spillway/internal/waited"
)

// An Order says which request is next in a [Queue] among those of the same priority.
type Order uint8

// The orders.
const (
	// FIFO serves the first to come first. It is fair: in a long overload all requests wait equally long.
	FIFO Order = iota
	// LIFO serves the last to come first: in an overload some requests are served without delay, and the others are not
	// served at all.
	LIFO
	// Adaptive is FIFO until the queue stands: requests have waited for longer than [Queue.Interval], not counting as
	// much time as none waited. A standing queue is LIFO, and new requests wait for [Queue.Target] at most. This is
	// Facebook's adaptive LIFO with controlled delay, after CoDel: bursts are served in order, and standing queues do not
	// delay all requests.
	Adaptive
	// Fair takes turns between keys ([spillway.Request.Key]), so a key with many waiting requests does not delay the
	// others. Requests of one key stay in order, and each request without a key counts as a key of its own. When the queue
	// is full, a key with few waiting requests takes the place of the newest request of a key with many. Fair is
	// start-time fair queueing over 64 lines with shuffle sharding, as in the API Priority and Fairness of Kubernetes: two
	// keys may share a line. While the queue stands, new requests wait for [Queue.Target] at most.
	Fair
	numOrders
)

// A Queue is the [Rule] that lets at most Limit requests run at once, and makes a bounded number of others wait for
// their turn. The highest priority goes first, except that one place in a thousand goes to the lowest, so that it does
// not starve. Equal priorities go by [Order]. When MaxQueue requests wait, a request takes the place of one of lower
// priority, or is refused. A request is refused at once if the pace of the queue says that its turn comes after MaxWait,
// or after its [spillway.Request.Timeout] or the deadline of its context. A request of cost n takes n places when it
// runs. Until n places are free, no other request of its priority overtakes it. With a [Concurrency], no request waits.
//
// The time that Admit takes does not count as latency for the policies behind it. Calls other than Admit have the
// priority [spillway.Normal]. All fields but Name can change while the limit runs. Waiting requests keep their place
// and their time, except that requests that cost more than a new Limit are refused.
//
// Limit and MaxQueue are required.
type Queue struct {
	// Limit is how many requests may run at once, at least 1.
	Limit int
	// MaxQueue is how many other requests may wait, at least 1.
	MaxQueue int
	// MaxWait is how long a request may wait. If MaxWait is 0, it is one second.
	MaxWait time.Duration
	// Order decides which request of the same priority is next. The zero Order is FIFO.
	Order Order
	// Target is the longest wait of a request that arrives while an Adaptive or Fair queue stands. If Target is 0, it is
	// 5 ms.
	Target time.Duration
	// Interval is the time for which requests wait before an Adaptive or Fair queue stands. If Interval is 0, it is 100
	// ms.
	Interval time.Duration
	// Name is the name of the limit in rejections and metrics, in printable ASCII. If Name is empty, it is "queue".
	Name string
}

// complete fills in the defaults, and returns an error that names the invalid field.
func (r *Queue) complete() (err error) {
	const kind = "Queue"
	for _, d := range []struct {
		name      string
		d         *time.Duration
		byDefault time.Duration
	}{{"MaxWait", &r.MaxWait, time.Second}, {"Target", &r.Target, 5 * time.Millisecond}, {"Interval", &r.Interval, 100 * time.Millisecond}} {
		if *d.d == 0 {
			*d.d = d.byDefault
		}
		if *d.d < 0 || *d.d > horizon {
			return fmt.Errorf("limiter: %s: %s must be in 0..%v, got %v", kind, d.name, time.Duration(horizon), *d.d)
		}
	}
	if err := validatePlaces(kind, r.Limit); err != nil {
		return err
	}
	switch {
	case r.MaxQueue < 1:
		return fmt.Errorf("limiter: %s: MaxQueue must be at least 1, got %d", kind, r.MaxQueue)
	case r.Order >= numOrders:
		return fmt.Errorf("limiter: %s: Order must be one of the constants, got %d", kind, r.Order)
	}
	r.Name, err = named(kind, r.Name, "queue")
	return err
}

func (r Queue) build() (Limiter, error) {
	if err := r.complete(); err != nil {
		return nil, err
	}
	q := &queue{clock: newClock(), reject: rejections.New(r.Name, rejections.Limit, false), rule: r, other: map[string]*spillway.Rejection{}}
	q.seats.list.Seed = rand.Uint64()
	q.seats.setRule(0, r)
	for _, reason := range []string{rejections.Full, rejections.Wait, rejections.Deadline, rejections.Ousted} {
		rej := q.reject.Build(reason, 0)
		q.other[reason] = &rej
	}
	return q, nil
}

func (r Queue) keyed(int) (keyedLimits, error) { return nil, errQueues(r) }

// A queue is the limit by a [Queue].
type queue struct {
	clock  clock
	reject *rejections.Set
	other  map[string]*spillway.Rejection

	mu sync.Mutex
	// Guarded by mu.
	rule   Queue
	seats  seats
	counts queueCounts
}

// busy counts the calls that find no free place and do not wait.
type queueCounts struct {
	admitted, waited, busy, full, late, tooLate, ousted, impossible, cancelled int64

	waits, refusedAfter waited.Recorder
}

// Queues returns true: Admit may block.
func (q *queue) Queues() bool { return true }

// Admit takes as many places as r costs, and waits for them if necessary. It returns a *[spillway.Rejection] at once if
// the queue is full or too slow for r, or later if r has waited too long or another request takes its place in the queue. It returns
// ctx.Err() if ctx ends first.
func (q *queue) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	return 0, q.enter(ctx, q.clock.ns(r.Arrived), costOf(&r), &r)
}

// Done gives the places of r back, whatever its outcome, and the next callers get them.
func (q *queue) Done(r spillway.Request, _ spillway.Ticket, res spillway.Result) {
	q.release(q.clock.ns(r.Arrived)+int64(min(res.Latency, horizon)), costOf(&r))
}

func (q *queue) Allow() bool { return q.try(1) == nil }

func (q *queue) AllowAt(_ time.Time, n int) error { return q.try(n) }

// try takes n places if they are free and no request waits for them.
func (q *queue) try(n int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case n < 0 || int64(n) > q.seats.limit:
		q.counts.impossible++
		return q.costError(n)
	case !q.seats.tryNow(int64(n), spillway.Normal):
		q.counts.busy++
		return q.reject.Unknown()
	}
	q.counts.admitted++
	return nil
}

// costError returns the error for a cost that can never pass. The caller holds the lock.
func (q *queue) costError(n int) error {
	return &CostError{Limit: q.rule.Name, Cost: n, Max: int(q.seats.limit), rejection: q.reject.Cost(int64(n))}
}

func (q *queue) Wait(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := q.enter(ctx, q.clock.ns(readClock()), int64(n), &spillway.Request{})
	if isMisuse(err) {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.costError(n)
	}
	return err
}

func (q *queue) ReserveAt(now time.Time, n int, _ time.Duration) (Reservation, error) {
	if err := q.AllowAt(now, n); err != nil {
		return Reservation{}, err
	}
	return Reservation{from: q, n: int64(n)}, nil
}

// ns returns 0: a place has no time, because it is held until it is given back.
func (q *queue) ns(time.Time) int64 { return 0 }

func (q *queue) refund(now time.Time, _ Reservation, n int64) { q.release(q.clock.ns(now), n) }

func (q *queue) Release(n int) {
	if n < 0 {
		panic("limiter: Queue: Release of a negative number")
	}
	q.release(q.clock.now(), int64(n))
}

func (q *queue) Rule() Rule {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.rule
}

func (q *queue) Tune(rule Rule) error { return q.TuneAt(readClock(), rule) }

func (q *queue) TuneAt(now time.Time, rule Rule) error {
	next, err := q.next(rule)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rule = next
	q.seats.setRule(q.clock.ns(now), next)
	return nil
}

func (q *queue) Check(rule Rule) (Rule, error) { return q.next(rule) }

func (q *queue) next(rule Rule) (Queue, error) {
	next, ok := rule.(Queue)
	if !ok {
		return next, fmt.Errorf("limiter: Queue: Tune: rule must be of the same kind, got %T", rule)
	}
	if err := next.complete(); err != nil {
		return next, err
	}
	return next, sameName("Queue", q.reject.Policy, next.Name)
}

func (q *queue) PeekAt(time.Time) State {
	q.mu.Lock()
	defer q.mu.Unlock()
	st := State{Limit: q.seats.limit}
	if q.seats.list.Len() == 0 {
		st.Remaining = max(q.seats.limit-q.seats.inFlight, 0)
	}
	return st
}

func (q *queue) Idle(time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.seats.inFlight == 0 && q.seats.list.Len() == 0
}

func (q *queue) Quota(now time.Time, _ spillway.Request) spillway.Quota {
	s := q.PeekAt(now)
	return spillway.Quota{Name: q.reject.Policy, Limit: s.Limit, Remaining: s.Remaining}
}

func (q *queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := &q.counts
	s := Stats{
		Name: q.reject.Policy, Admitted: c.admitted, Impossible: c.impossible,
		InFlight: q.seats.inFlight, Waiting: int64(q.seats.list.Len()), Cancelled: c.cancelled, Waited: c.waited,
		Waits: c.waits.Value(), RefusedAfter: c.refusedAfter.Value(),
	}
	s.refuse(rejections.Limit, c.busy)
	s.refuse(rejections.Full, c.full)
	s.refuse(rejections.Wait, c.late)
	s.refuse(rejections.Deadline, c.tooLate)
	s.refuse(rejections.Ousted, c.ousted)
	return s
}

var _ spillway.Policy = (*queue)(nil)
