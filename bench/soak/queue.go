package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
)

// A queueLane sends requests through a gate with queues. Each request has a separate goroutine, as it would block. The
// world continues when all of them have been admitted, been refused, or wait. So only the queue's own clock is real,
// and no request waits long enough for that to matter: deadlines are contexts, which the world ends.
type queueLane struct {
	w     *world
	rng   *rand.Rand // separate, so that the order of goroutines does not affect the other gates
	book  *gateBook
	queue limiter.Limiter

	mu      sync.Mutex
	members map[limiter.Limiter]int // of the registry, with how many requests ask them
	reports chan arrival
	live    int // goroutines in the gate
	cancels map[int64]context.CancelFunc
	seq     int64
}

// An arrival is a goroutine that has come through the gate, or not: then it has no pass.
type arrival struct {
	id int64
	p  *pass
}

const (
	queuePlaces = 12
	queueLength = 20
)

func (w *world) newQueueLane() *queueLane {
	q := &queueLane{w: w, rng: rand.New(rand.NewPCG(w.seed, 22)), reports: make(chan arrival), members: map[limiter.Limiter]int{}, cancels: map[int64]context.CancelFunc{}}
	limit := queuePlaces
	q.queue = spillway.Must(limiter.New(limiter.Queue{Limit: limit, MaxQueue: queueLength, MaxWait: time.Hour}))
	b := w.probe("queue", q.queue)
	b.numbers = func() numbers {
		s := q.queue.Stats()
		w.within(b.name, "Waiting", float64(s.Waiting), float64(b.waiting), float64(b.waiting))
		w.within(b.name, "Waiting", float64(s.Waiting), 0, queueLength)
		w.within(b.name, "Cancelled", float64(s.Cancelled), float64(b.gaveUp), float64(b.gaveUp))
		if s.Waiting > 0 && s.InFlight+maxCost <= int64(limit) {
			w.violate(b.name, "nobody waiting expected with %d of %d places taken, %d wait", s.InFlight, limit, s.Waiting)
		}
		return numbers{
			inFlight: -1, cost: s.InFlight, refused: s.Refused + s.Impossible, admitted: s.Admitted, returned: -1,
		}
	}
	b.admits = func(spillway.Request) {
		if b.cost > int64(limit) {
			w.violate(b.name, "at most %d places expected, %d were given", limit, b.cost)
		}
	}
	w.tune(b.name, func() error {
		limit = w.intBetween(maxCost, 2*queuePlaces)
		err := q.queue.TuneAt(w.time(), limiter.Queue{Limit: limit, MaxQueue: queueLength, MaxWait: time.Hour})
		q.settle()
		return err
	})
	members := w.probe("queues", spillway.Must(limiter.NewRegistry(&limiter.RegistryOptions{
		MaxKeys: keysOfServer / 4, New: func(string) (limiter.Member, error) {
			m, err := limiter.New(limiter.Queue{Limit: 3, MaxQueue: 3, MaxWait: time.Hour, Order: limiter.LIFO})
			return &member{m, q}, err
		},
	})))
	q.book = w.gate("queues", queueing{b}, queueing{members}, w.throttle("throttle behind queues"))
	return q
}

// A member is a queue of the registry that reports whether a request waits in it.
type member struct {
	limiter.Limiter
	lane *queueLane
}

// Admit asks the queue.
func (m *member) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	m.count(1)
	defer m.count(-1)
	return m.Limiter.Admit(ctx, r)
}

// Queues marks that Admit may block.
func (m *member) Queues() bool { return true }

func (m *member) count(n int) {
	m.lane.mu.Lock()
	defer m.lane.mu.Unlock()
	if m.lane.members[m.Limiter] += n; m.lane.members[m.Limiter] == 0 {
		delete(m.lane.members, m.Limiter)
	}
}

// waiting counts the requests that wait in any queue.
func (q *queueLane) waiting() int {
	n := q.queue.Stats().Waiting
	q.mu.Lock()
	defer q.mu.Unlock()
	for m := range q.members {
		n += m.Stats().Waiting
	}
	return int(n)
}

// maxCost is the greatest cost of a request.
const maxCost = 3

// send sends one request, which leaves when it has waited for too long.
func (q *queueLane) send(r spillway.Request) {
	w := q.w
	ctx, cancel := context.WithCancel(background)
	q.seq++
	id := q.seq
	q.cancels[id] = cancel
	q.live++
	go func() { q.reports <- arrival{id, q.book.enter(ctx, r)} }()
	q.settle()
	if q.cancels[id] != nil {
		w.after(exp(q.rng, time.Second), func() {
			cancel()
			for q.cancels[id] != nil { // until it has woken, it still counts as waiting
				q.take(<-q.reports)
			}
			q.settle()
		})
	}
}

// settle waits until every goroutine of the lane has reported or waits in a queue.
func (q *queueLane) settle() {
	for q.live > 0 {
		select {
		case r := <-q.reports:
			q.take(r)
			continue
		default:
		}
		if q.waiting() == q.live {
			return
		}
		runtime.Gosched()
	}
}

// take records a goroutine that has come through the gate.
func (q *queueLane) take(r arrival) {
	q.live--
	q.cancels[r.id]()
	delete(q.cancels, r.id)
	if r.p != nil {
		q.run(r.p)
	}
}

// run is the work of an admitted request.
func (q *queueLane) run(p *pass) {
	w := q.w
	w.after(exp(q.rng, time.Second), func() {
		o := spillway.Success
		if q.rng.Float64() < 0.05 {
			o = spillway.Failure
		}
		p.done(o, q.rng)
		q.settle()
	})
}

// close ends the waits.
func (q *queueLane) close() {
	for _, cancel := range q.cancels {
		cancel()
	}
	for q.live > 0 {
		q.take(<-q.reports)
	}
}
