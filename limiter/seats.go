package limiter

import (
	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/waitlist"
)

// seats is the rule of a Queue: a number of places, and the calls that wait for them. It is pure: the caller passes the
// time and holds the lock.
type seats struct {
	limit, inFlight int64
	list            waitlist.List
}

// tryNow takes n places if they are free and no call of that priority or a higher one waits for them.
func (q *seats) tryNow(n int64, p spillway.Priority) bool {
	// While callers wait, places are free only if the first caller needs more of them.
	first, some := q.list.First()
	if n > q.limit-q.inFlight || some && first >= p {
		return false
	}
	q.inFlight += n
	return true
}

// enqueue lets a call wait, and gives free places to the first callers: it may be one of them, or have ousted a call that
// was in the way.
func (q *seats) enqueue(now int64, g waitlist.Guest, left int64) (*waitlist.Guest, int64, waitlist.Verdict) {
	guest, wait, verdict := q.list.Enqueue(now, g, left)
	if verdict == waitlist.Queued {
		q.grant(now)
	}
	return guest, wait, verdict
}

// grant gives free places to the first callers.
func (q *seats) grant(now int64) {
	for {
		g := q.list.Next(now)
		if g == nil || g.N > q.limit-q.inFlight {
			return // it is this request's turn; otherwise many small requests could keep it waiting for ever
		}
		q.inFlight += g.N
		q.list.Settle(g, waitlist.Runs)
	}
}

// release gives n places back.
func (q *seats) release(now, n int64) {
	q.inFlight -= n
	q.list.Served(now, n)
	q.grant(now)
}

// leave takes g out of the queue, or gives its places back, because its caller gave up.
func (q *seats) leave(now int64, g *waitlist.Guest) {
	if q.list.Leave(now, g) {
		q.inFlight -= g.N
	}
	q.grant(now) // it may have been in the way
}

// setRule takes the figures of a rule. Waiting calls keep their place and their time.
func (q *seats) setRule(now int64, r Queue) {
	l := &q.list
	l.MaxQueue, l.Order = r.MaxQueue, waitlist.Order(r.Order)
	l.MaxWait, l.Target, l.Interval = int64(r.MaxWait), int64(r.Target), int64(r.Interval)
	q.setLimit(now, int64(r.Limit))
}

// setLimit changes the limit. Calls that need more places than that leave.
func (q *seats) setLimit(now, limit int64) {
	q.limit = limit
	q.list.All(now, func(g *waitlist.Guest) {
		if g.N > limit {
			q.list.Settle(g, waitlist.Large)
		}
	})
	q.grant(now)
}
