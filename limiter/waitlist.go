package limiter

import (
	"cmp"
	"slices"

	"github.com/spillway-go/spillway"
)

// A waitlist is the rule of a Queue. It is pure: the caller passes the time and holds the lock.
type waitlist struct {
	limit    int64
	maxQueue int
	order    Order
	maxWait  int64 // ns that one may wait
	target   int64 // longest wait in ns while the queue stands; for Adaptive
	interval int64 // ns after which a queue that is never empty counts as standing; for Adaptive

	inFlight int64
	waiting  int
	levels   []level // the highest priority first; none is empty
	emptied  int64   // the last ns at which the queue was known to be empty
}

// A level holds the waiting callers of one priority, in the order of their arrival.
type level struct {
	priority   spillway.Priority
	head, tail *guest
}

// A guest is a waiting call.
type guest struct {
	n          int64
	priority   spillway.Priority
	fate       fate
	ready      chan struct{} // closed when fate is no longer waits
	prev, next *guest
}

// A fate says how the wait of a guest ended.
type fate uint8

const (
	waits  fate = iota
	runs        // it has its places
	ousted      // it lost its place to a request of higher priority
	large       // the limit has become too small for it
)

// tryNow takes n places if they are free and no call waits for them.
func (q *waitlist) tryNow(now, n int64, p spillway.Priority) bool {
	if q.waiting == 0 {
		q.emptied = max(q.emptied, now)
	}
	// While callers wait, places are free only if the first caller needs more of them.
	if n > q.limit-q.inFlight || q.waiting > 0 && q.levels[0].priority >= p {
		return false
	}
	q.inFlight += n
	return true
}

// stands reports whether the queue has not been empty for longer than the interval.
func (q *waitlist) stands(now int64) bool {
	return q.order == Adaptive && q.waiting > 0 && now-q.emptied > q.interval
}

// enqueue lets g wait for at most wait ns. If ok is false, the queue is full and no waiter has a lower priority.
func (q *waitlist) enqueue(now int64, g *guest) (wait int64, ok bool) {
	wait = q.maxWait
	if q.stands(now) {
		wait = min(wait, q.target)
	}
	if q.waiting >= q.maxQueue && !q.oust(g.priority) {
		return 0, false
	}
	i, found := slices.BinarySearchFunc(q.levels, g.priority, func(l level, p spillway.Priority) int {
		return cmp.Compare(p, l.priority)
	})
	if !found {
		q.levels = slices.Insert(q.levels, i, level{priority: g.priority})
	}
	l := &q.levels[i]
	if g.prev = l.tail; g.prev == nil {
		l.head = g
	} else {
		g.prev.next = g
	}
	l.tail = g
	q.waiting++
	return wait, true
}

// oust removes the newest call of the lowest priority, if that is below p.
func (q *waitlist) oust(p spillway.Priority) bool {
	if q.waiting == 0 {
		return false
	}
	lowest := q.levels[len(q.levels)-1]
	if lowest.priority >= p {
		return false
	}
	q.settle(lowest.tail, ousted)
	return true
}

// settle takes g out of the queue with a fate other than waits.
func (q *waitlist) settle(g *guest, f fate) {
	q.remove(g)
	g.fate = f
	close(g.ready)
}

// remove takes g out of the queue.
func (q *waitlist) remove(g *guest) {
	i := slices.IndexFunc(q.levels, func(l level) bool { return l.priority == g.priority })
	l := &q.levels[i]
	if g.prev == nil {
		l.head = g.next
	} else {
		g.prev.next = g.next
	}
	if g.next == nil {
		l.tail = g.prev
	} else {
		g.next.prev = g.prev
	}
	g.prev, g.next = nil, nil
	if l.head == nil {
		q.levels = slices.Delete(q.levels, i, i+1)
	}
	q.waiting--
}

// grant gives free places to the first callers.
func (q *waitlist) grant(now int64) {
	for q.waiting > 0 {
		l := &q.levels[0]
		g := l.head
		if q.order == LIFO || q.stands(now) {
			g = l.tail
		}
		if g.n > q.limit-q.inFlight {
			return // it is this request's turn; otherwise many small requests could keep it waiting for ever
		}
		q.inFlight += g.n
		q.settle(g, runs)
	}
	q.emptied = max(q.emptied, now)
}

// release gives n places back.
func (q *waitlist) release(now, n int64) {
	q.inFlight -= n
	q.grant(now)
}

// leave takes g out of the queue, or gives its places back, because its caller gave up.
func (q *waitlist) leave(now int64, g *guest) {
	switch g.fate {
	case waits:
		q.remove(g)
		q.grant(now) // it may have been in the way
	case runs:
		q.release(now, g.n)
	}
}

// setRule takes the figures of a rule. Waiting calls keep their place and their time.
func (q *waitlist) setRule(now int64, r Queue) {
	q.maxQueue, q.order = r.MaxQueue, r.Order
	q.maxWait, q.target, q.interval = int64(r.MaxWait), int64(r.Target), int64(r.Interval)
	q.setLimit(now, int64(r.Limit))
}

// setLimit changes the limit. Calls that need more places than that leave.
func (q *waitlist) setLimit(now, limit int64) {
	q.limit = limit
	for i := len(q.levels) - 1; i >= 0; i-- {
		for g := q.levels[i].head; g != nil; {
			next := g.next
			if g.n > limit {
				q.settle(g, large)
			}
			g = next
		}
	}
	q.grant(now)
}
