package breaker

import (
	"sync"
	"sync/atomic"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/stripe"
)

// A trail counts requests and accepts over a window. It keeps running totals, and for each slot a copy of the totals
// from when the slot began. The difference is the count in the window. So a request makes one addition and reads two
// words, whatever the number of slots. A time before the latest counts as the latest, unless the latest is wrong: see
// rewind.
type trail struct {
	span   instant
	slots  int64
	newest atomic.Int64
	floor  mark         // the totals when the window began
	early  atomic.Int64 // total of requests when the second before this one began
	lately atomic.Int64 // total of requests when this second began
	second atomic.Int64
	mu     sync.Mutex // guards marks and late; taken to move on
	late   lateCount
	marks  []mark // [slot modulo slots]
	_      [stripe.Size]byte
	total  mark          // every request writes to one cache line only
	chance atomic.Uint64 // state of the sequence of random numbers
	_      [stripe.Size]byte
}

// A mark is a pair of totals.
type mark struct{ requests, accepts atomic.Int64 }

func (m *mark) set(from *mark) {
	m.requests.Store(from.requests.Load())
	m.accepts.Store(from.accepts.Load())
}

func (t *trail) init(span instant, slots int64) {
	t.span, t.slots = span, slots
	t.marks = make([]mark, slots)
}

// grace is how long a running request does not count against the service.
const grace = instant(1e9)

// slot returns the slot of now, or the newest if that is later, and moves the trail on if it is new.
func (t *trail) slot(now instant) int64 {
	if t.second.Load() < int64(now/grace) {
		t.tick(int64(now / grace))
	}
	newest := t.newest.Load()
	if now < instant(newest+1)*t.span {
		return newest
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	newest = t.newest.Load()
	slot := int64(now / t.span)
	for s := max(newest, slot-t.slots) + 1; s <= slot; s++ {
		t.marks[t.place(s)].set(&t.total)
	}
	if slot > newest {
		t.floor.set(&t.marks[t.place(slot+1)])
		t.newest.Store(slot)
	}
	return t.newest.Load()
}

// rewind counts a request from before the window. If nearly all requests since the window last moved on were like that,
// the end of the window must be wrong. Then the trail forgets everything and ends with now, and rewind returns true.
func (t *trail) rewind(now instant) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	newest, slot := t.newest.Load(), int64(now/t.span)
	if slot > newest-t.slots { // another goroutine wound it back
		return false
	}
	if t.late.newest != newest {
		t.late = lateCount{newest: newest}
	}
	t.late.n++
	since := t.total.requests.Load() - t.marks[t.place(newest)].requests.Load()
	if t.late.n < rewindAfter || 4*t.late.n < 3*since {
		return false
	}
	t.clear()
	t.newest.Store(slot)
	t.early.Store(t.total.requests.Load())
	t.lately.Store(t.total.requests.Load())
	t.second.Store(int64(now / grace))
	return true
}

// place returns where the mark of slot is, which may be negative.
func (t *trail) place(slot int64) int64 { return ((slot % t.slots) + t.slots) % t.slots }

func (t *trail) tick(second int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.second.Load()
	if second <= last {
		return
	}
	early := t.lately.Load()
	t.lately.Store(t.total.requests.Load())
	if second > last+1 {
		early = t.lately.Load()
	}
	t.early.Store(early)
	t.second.Store(second)
}

// ask counts a request and returns how many came before it in the window.
func (t *trail) ask() int64 { return max(t.total.requests.Add(1)-1-t.floor.requests.Load(), 0) }

func (t *trail) accept() { t.total.accepts.Add(1) }

// accepted returns the accepts in the window.
func (t *trail) accepted() int64 { return max(t.total.accepts.Load()-t.floor.accepts.Load(), 0) }

// recent returns how many requests came in the last second or two.
func (t *trail) recent() int64 { return max(t.total.requests.Load()-t.early.Load(), 0) }

// takeBack undoes ask for the request with the given ticket.
func (t *trail) takeBack(tk spillway.Ticket) {
	newest := t.newest.Load()
	if uint32(newest) == uint32(tk) {
		t.total.requests.Add(-1)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	newest = t.newest.Load()
	slot := newest + int64(int32(uint32(tk)-uint32(newest)))
	if slot <= newest-t.slots {
		return // it has left the window
	}
	for s := slot + 1; s <= newest; s++ {
		t.marks[t.place(s)].requests.Add(-1)
	}
	t.total.requests.Add(-1)
}

// forget empties the window.
func (t *trail) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
}

// clear is like forget. The caller holds mu.
func (t *trail) clear() {
	for i := range t.marks {
		t.marks[i].set(&t.total)
	}
	t.floor.set(&t.total)
}

// sum returns the counts of the window that ends at now, without moving the window on.
func (t *trail) sum(now instant) (requests, accepts int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	newest := t.newest.Load()
	first := max(int64(now/t.span), newest) - t.slots + 1
	if first > newest {
		return 0, 0
	}
	m := &t.marks[t.place(first)]
	return max(t.total.requests.Load()-m.requests.Load(), 0), max(t.total.accepts.Load()-m.accepts.Load(), 0)
}
