package waitlist

import (
	"cmp"
	"slices"

	"github.com/spillway-go/spillway"
)

// An Order says which request is next among those of the same priority.
type Order uint8

// The orders.
const (
	FIFO     Order = iota
	LIFO           // the last to come first
	Adaptive       // LIFO while the list stands, and otherwise FIFO
	Fair           // by turns of keys
	NumOrders
)

// last reports whether the last to come is the first to be served.
func (o Order) last(stands bool) bool { return o == LIFO || o == Adaptive && stands }

// A List holds waiting requests. Its exported fields may change at any time. The zero List lets nothing wait.
type List struct {
	Order    Order
	MaxQueue int    // how many may wait
	MaxWait  int64  // ns that one may wait
	Target   int64  // longest wait in ns of a request that comes while the list stands; for Adaptive and Fair
	Interval int64  // ns of waiting, in excess of the time without, after which a list stands
	Seed     uint64 // of the hash of keys; strangers do not know it

	waiting int
	levels  []*level // the highest priority first; none is empty
	spare   *level   // an empty one, to use again
	refused *Guest   // to use again, so that a refusal allocates nothing
	came    uint64   // number of guests so far
	turns   uint64   // number of guests that ran
	stood   int64    // ns that requests have waited, less those without, 0 to 2 * Interval
	at      int64    // time up to which stood counts
	pace    pace
}

// trickle is how many places there are for each one that goes to the lowest priority, so that it does not starve.
const trickle = 1000

// A Guest is a waiting request. Its owner sets the first fields.
type Guest struct {
	N        int64 // places that it needs
	Priority spillway.Priority
	Key      string
	Weight   float64 // share of its key among keys; 0 is 1
	Slot     int     // for the owner
	Fits     bool    // for the owner

	Ready chan struct{} // closed when Fate is no longer Waits
	Fate  Fate

	line       *line
	fair       bool   // it counts in a flow
	place      uint64 // hash of its key
	number     uint64
	prev, next *Guest
}

// A Fate says how the wait of a Guest ended.
type Fate uint8

// The fates.
const (
	Waits  Fate = iota
	Runs        // it has its places
	Ousted      // it lost its place to another request
	Large       // the limit has become too small for it
)

// A Verdict says what becomes of a request that asks to wait.
type Verdict uint8

// The verdicts.
const (
	Queued  Verdict = iota
	Full            // there is no room to wait
	TooLong         // it would wait for longer than MaxWait
	TooLate         // its turn would come after its deadline
)

// Len returns the number of guests.
func (q *List) Len() int { return q.waiting }

// First returns the highest priority of the guests, and false if there are none.
func (q *List) First() (spillway.Priority, bool) {
	if q.waiting == 0 {
		return 0, false
	}
	return q.levels[0].priority, true
}

// observe takes note of the time before the number of guests changes.
func (q *List) observe(now int64) {
	d := max(now-q.at, 0)
	q.at = max(q.at, now)
	if q.waiting == 0 {
		d = -d
	}
	q.stood = min(max(q.stood+d, 0), 2*q.Interval)
}

// Stands reports whether requests have waited for longer than the interval.
func (q *List) Stands(now int64) bool {
	q.observe(now)
	return q.Order >= Adaptive && q.waiting > 0 && q.stood > q.Interval
}

// Enqueue lets a guest wait, for at most wait ns. It has left ns before its deadline. If the verdict is not Queued, g is
// nil.
func (q *List) Enqueue(now int64, guest Guest, left int64) (g *Guest, wait int64, v Verdict) {
	if g = q.refused; g == nil {
		g = new(Guest)
	}
	*g, q.refused = guest, nil
	if wait, v = q.enqueue(now, g, left); v != Queued {
		q.refused = g
		return nil, 0, v
	}
	g.Ready = make(chan struct{})
	return g, wait, Queued
}

func (q *List) enqueue(now int64, g *Guest, left int64) (wait int64, v Verdict) {
	wait = q.MaxWait
	stands := q.Stands(now)
	if stands {
		wait = min(wait, q.Target)
	}
	q.came++
	g.number = q.came
	i, found := q.find(g.Priority)
	l := q.level(i, found, g.Priority)
	ln := l.choose(g, q.Order == Fair, q.Seed)
	if turn := q.pace.wait(q.ahead(i, found, ln, stands)+g.N, now, q.waiting > 0); turn > min(wait, left) {
		if left < wait {
			return 0, TooLate
		}
		return 0, TooLong
	}
	if q.waiting >= q.MaxQueue && !q.oust(l, ln, g) {
		return 0, Full
	}
	if i, found = q.find(g.Priority); !found { // also if the only guest of that priority was ousted
		q.levels = slices.Insert(q.levels, i, l)
		if q.spare == l {
			q.spare = nil
		}
	}
	if q.waiting == 0 {
		q.pace.begin(now)
	}
	l.push(ln, g)
	q.waiting++
	return wait, Queued
}

func (q *List) find(p spillway.Priority) (int, bool) {
	return slices.BinarySearchFunc(q.levels, p, func(l *level, p spillway.Priority) int { return cmp.Compare(p, l.priority) })
}

// level returns the i-th level, or if there is none of that priority, the spare one.
func (q *List) level(i int, found bool, p spillway.Priority) *level {
	if found {
		return q.levels[i]
	}
	if q.spare == nil {
		q.spare = &level{}
	}
	q.spare.priority = p
	return q.spare
}

// ahead returns the places that guests need before one more in a line of the i-th level has its turn.
func (q *List) ahead(i int, found bool, own *line, stands bool) (n int64) {
	for _, l := range q.levels[:i] {
		n += l.n
	}
	switch {
	case !found || q.Order.last(stands):
		return n
	case q.Order != Fair:
		return n + q.levels[i].n
	}
	for _, ln := range q.levels[i].lines {
		if ln != nil {
			n += min(ln.n, own.n+1)
		}
	}
	return n
}

// oust removes a guest for g, which would wait in the given line: the newest of the lowest priority, or of a key or a
// line of the same priority that has more guests by at least two.
func (q *List) oust(l *level, own *line, g *Guest) bool {
	if q.waiting == 0 {
		return false
	}
	lowest := q.levels[len(q.levels)-1]
	victim := lowest.victim()
	switch {
	case lowest.priority < g.Priority:
	case lowest != l || q.Order != Fair:
		return false
	case l.flowOf(victim) <= l.flowOf(g)+1 && victim.line.guests <= own.guests+1:
		return false
	}
	q.Settle(victim, Ousted)
	return true
}

// Settle ends the wait of g.
func (q *List) Settle(g *Guest, f Fate) {
	if f == Runs {
		q.turns++
		g.line.level.serve(g)
	}
	q.remove(g)
	g.Fate = f
	close(g.Ready)
}

// remove takes g out.
func (q *List) remove(g *Guest) {
	l := g.line.level
	l.pop(g)
	if q.waiting--; l.guests > 0 {
		return
	}
	i, _ := q.find(l.priority)
	q.levels = slices.Delete(q.levels, i, i+1)
	l.reset()
	q.spare = l
}

// Leave takes g out because its caller gave up. It reports whether g had its places, which its owner gives back.
func (q *List) Leave(now int64, g *Guest) (ran bool) {
	if g.Fate == Waits {
		q.observe(now)
		q.remove(g)
	}
	return g.Fate == Runs
}

// Next returns the guest whose turn it is, or nil. The caller settles it if there is room.
func (q *List) Next(now int64) *Guest {
	stands := q.Stands(now)
	if q.waiting == 0 {
		return nil
	}
	l := q.levels[0]
	if q.turns%trickle == trickle-1 {
		l = q.levels[len(q.levels)-1]
	}
	return l.next(q.Order, stands)
}

// Served tells the list that n places became free.
func (q *List) Served(now, n int64) {
	if q.waiting > 0 {
		q.pace.add(now, n)
	}
}

// All calls f for all guests. It may settle the one that it is called with.
func (q *List) All(now int64, f func(*Guest)) {
	q.observe(now)
	for i := len(q.levels) - 1; i >= 0; i-- {
		for _, ln := range q.levels[i].lines {
			if ln == nil {
				continue
			}
			for g := ln.head; g != nil; {
				next := g.next
				f(g)
				g = next
			}
		}
	}
}
