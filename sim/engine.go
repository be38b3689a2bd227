package sim

import (
	"math/bits"
	"time"
)

// An engine runs events in the order of their time, and events of the same time in the order in which they were
// scheduled. That order is total, so every run is the same to the bit.
type engine struct {
	now    time.Duration // since the epoch of the simulation
	skew   time.Duration // how far the policies' clock has jumped
	seq    uint64
	events eventHeap
	// lasts are events that are scheduled in the order of their time, such as deadlines, which are all equally far
	// away. In a queue they cost little, while the heap would carry each of them until its time.
	lasts eventQueue
	blocked
}

type event struct {
	at  time.Duration
	seq uint64
	run func()
}

// at schedules f for time t, or for now if t is past.
func (e *engine) at(t time.Duration, f func()) {
	e.seq++
	e.events.push(event{max(t, e.now), e.seq, f})
}

func (e *engine) after(d time.Duration, f func()) { e.at(e.now+d, f) }

// last schedules f for time t, which must not be before that of an earlier call.
func (e *engine) last(t time.Duration, f func()) {
	e.seq++
	e.lasts.push(event{t, e.seq, f})
}

// epoch is where virtual time begins, in Unix seconds.
const epoch = 1_000_000_000

// time returns now as policies see it.
func (e *engine) time() time.Time { return time.Unix(epoch, 0).Add(e.now + e.skew) }

// run runs the events up to the given time.
func (e *engine) run(until time.Duration) {
	for {
		next, queued := e.next()
		if e.outside > 0 {
			at := until
			if next != nil {
				at = min(at, next.at)
			}
			if !e.pass(at) {
				continue
			}
		}
		if next == nil || next.at > until {
			break
		}
		e.now = next.at
		run := next.run
		if queued {
			e.lasts.pop()
		} else {
			e.events.pop()
		}
		run()
	}
	e.now = until
}

// next returns the event that comes first, and whether it is one of lasts.
func (e *engine) next() (next *event, queued bool) {
	if len(e.events) > 0 {
		next = &e.events[0]
	}
	if q := e.lasts.first(); q != nil && (next == nil || q.before(next)) {
		return q, true
	}
	return next, false
}

// An eventQueue is a ring of events that come in the order of their time.
type eventQueue struct {
	ring    []event // of a power of two
	head, n int
}

func (q *eventQueue) first() *event {
	if q.n == 0 {
		return nil
	}
	return &q.ring[q.head]
}

func (q *eventQueue) push(ev event) {
	if q.n == len(q.ring) {
		ring := make([]event, max(64, 1<<bits.Len(uint(q.n))))
		copy(ring[copy(ring, q.ring[q.head:]):], q.ring[:q.head])
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = ev
	q.n++
}

func (q *eventQueue) pop() {
	q.ring[q.head] = event{}
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
}

// An eventHeap is a binary heap. The one in the standard library would allocate for each event.
type eventHeap []event

func (ev *event) before(other *event) bool {
	if ev.at != other.at {
		return ev.at < other.at
	}
	return ev.seq < other.seq
}

func (h *eventHeap) push(ev event) {
	*h = append(*h, ev)
	all := *h
	i := len(all) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !ev.before(&all[up]) {
			break
		}
		all[i] = all[up]
		i = up
	}
	all[i] = ev
}

func (h *eventHeap) pop() {
	all := *h
	last := all[len(all)-1]
	all[len(all)-1] = event{}
	all = all[:len(all)-1]
	*h = all
	if len(all) == 0 {
		return
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= len(all) {
			break
		}
		if right := down + 1; right < len(all) && all[right].before(&all[down]) {
			down = right
		}
		if !all[down].before(&last) {
			break
		}
		all[i] = all[down]
		i = down
	}
	all[i] = last
}
