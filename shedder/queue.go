package shedder

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/inflight"
	"github.com/spillway-go/spillway/internal/waited"
	"github.com/spillway-go/spillway/internal/waitlist"
	"github.com/spillway-go/spillway/shedder/internal/level"
	"github.com/spillway-go/spillway/stats"
)

const (
	// standing is how long requests wait, as a multiple of MaxWait, before the queue stands. Waiting helps against bursts.
	// In a long overload it only delays all requests.
	standing = 4
	// shortWait is the longest wait of a request that arrives while the queue stands. It fills the gaps that chance leaves.
	shortWait = 5 * time.Millisecond
)

// A queue holds the requests that wait for room.
type queue struct {
	waiting atomic.Int64
	first   atomic.Int64  // the highest priority that waits
	turned  stats.Counter // requests that found no room and waited

	mu   sync.Mutex // guards the rest; taken by requests that wait, and by those that end meanwhile
	list waitlist.List

	waited, cancelled   int64
	waits, refusedAfter waited.Recorder
}

// tune takes the options.
func (q *queue) tune(o *Options) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list.MaxQueue, q.list.MaxWait, q.list.Interval = o.MaxQueue, int64(o.MaxWait), standing*int64(o.MaxWait)
}

// publish makes the state of the list known to requests that do not take the lock. The caller holds it.
func (q *queue) publish() {
	if p, some := q.list.First(); some {
		q.first.Store(int64(p))
	}
	q.waiting.Store(int64(q.list.Len()))
}

// blocks reports whether requests wait that come before a new one of priority p.
func (q *queue) blocks(p spillway.Priority) bool {
	return q.waiting.Load() > 0 && int64(p) <= q.first.Load()
}

// Queues reports whether Admit may block: with [Options.MaxQueue].
func (s *Shedder) Queues() bool { return s.queue != nil }

// wait lets r wait, which has arrived at now and may ask for a.
func (s *Shedder) wait(ctx context.Context, r *spillway.Request, now int64, a level.Answer) (spillway.Ticket, error) {
	q := s.queue
	if err := ctx.Err(); err != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.cancelled++
		return 0, err
	}
	began := time.Now() //nolint:forbidigo // the shell that blocks
	ask := waitlist.Guest{N: 1, Priority: r.Priority, Key: r.Key, Weight: s.levels.Weight(r.Key), Fits: a.Fits}
	q.mu.Lock()
	g, longest, verdict := q.list.Enqueue(now, ask, left(ctx, r, began))
	q.publish()  // first, so that a request that ends from now on serves the list
	s.grant(now) // in case one has ended before
	q.mu.Unlock()
	switch verdict {
	case waitlist.Full:
		return s.turnAway(r, byFull, now, a)
	case waitlist.TooLong:
		return s.turnAway(r, byWait, now, a)
	case waitlist.TooLate:
		return s.turnAway(r, byDeadline, now, a)
	}
	q.turned.Add(1)
	timer := time.NewTimer(time.Duration(longest)) //nolint:forbidigo // the shell that blocks
	defer timer.Stop()
	select {
	case <-g.Ready:
	case <-timer.C:
	case <-ctx.Done():
	}
	return s.leave(ctx, r, g, now, time.Since(began), a) //nolint:forbidigo // the shell that blocks
}

// left returns the ns that r has before its deadline.
func left(ctx context.Context, r *spillway.Request, now time.Time) int64 {
	if r.Timeout != 0 {
		return int64(r.Timeout)
	}
	if deadline, ok := ctx.Deadline(); ok {
		return int64(deadline.Sub(now))
	}
	return math.MaxInt64
}

// leave ends the wait of g, which stands for r, has arrived at now and waited for took.
func (s *Shedder) leave(ctx context.Context, r *spillway.Request, g *waitlist.Guest, now int64, took time.Duration,
	a level.Answer,
) (spillway.Ticket, error) {
	q, class, err := s.queue, classOf(g.Priority), ctx.Err()
	q.mu.Lock()
	if g.Fate == waitlist.Runs && err == nil { // in time, even if the timer fired before the lock was free
		q.waited++
		q.waits.Record(took)
		q.mu.Unlock()
		s.entered(class)
		return spillway.Ticket(g.Slot) | spillway.Ticket(took)<<inflight.CellBits, nil
	}
	why := byWait
	if g.Fate == waitlist.Ousted {
		why = byOusted
	}
	if q.list.Leave(now+int64(took), g) {
		s.inside.Undo(g.Slot)
	}
	s.grant(now + int64(took))
	if err != nil {
		q.cancelled++
	} else {
		q.refusedAfter.Record(took)
	}
	q.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return s.turnAway(r, why, now, a)
}

// turnAway refuses a request, unless that would exceed MaxShed.
func (s *Shedder) turnAway(r *spillway.Request, why int, now int64, a level.Answer) (spillway.Ticket, error) {
	if !s.leak.passes(now) {
		return 0, s.refuse(r, now, why, a)
	}
	at, _ := s.inside.Enter(inflight.NoLimit)
	s.entered(classOf(r.Priority))
	return spillway.Ticket(at), nil
}

// serve lets requests in after n have ended, or after the limit has changed.
func (s *Shedder) serve(now, n int64) {
	q := s.queue
	if q == nil || q.waiting.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list.Served(now, n)
	s.grant(now)
}

// grant lets requests in while there is room. It is called with the queue's lock held.
func (s *Shedder) grant(now int64) {
	q := s.queue
	for g := q.list.Next(now); g != nil; g = q.list.Next(now) {
		first, _ := q.list.First() // if it is not the priority of g, g has its turn
		at, ok := s.inside.Enter(s.levels.Limit(int(first), g.Fits))
		if !ok {
			break
		}
		g.Slot = at
		q.list.Settle(g, waitlist.Runs)
	}
	q.publish()
}

// stats fills in the figures of the queue.
func (q *queue) stats(v *Stats) {
	q.mu.Lock()
	defer q.mu.Unlock()
	v.Waiting, v.Waited, v.Cancelled = int64(q.list.Len()), q.waited, q.cancelled
	v.Waits, v.RefusedAfter = q.waits.Value(), q.refusedAfter.Value()
}

// newQueue returns the queue of a Shedder, or nil if no request may wait.
func newQueue(o *Options) *queue {
	if o.MaxQueue == 0 {
		return nil
	}
	return &queue{list: waitlist.List{Order: waitlist.Fair, Target: int64(shortWait)}}
}

// seed sets a seed that strangers do not know, before any request waits.
func (q *queue) seed(seed uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list.Seed = seed
}

// keepsQueue returns an error if the options turn the queue on or off. A Gate asks only once whether a policy queues.
func (s *Shedder) keepsQueue(o *Options) error {
	if o.MaxQueue > 0 != s.Queues() {
		return fmt.Errorf("shedder: Tune: MaxQueue cannot change from or to 0, got %d", o.MaxQueue)
	}
	return nil
}
