package sim

import (
	"container/heap"
	"time"
)

// An engine runs events in the order of their time; events of one time in the order in which they were planned. That order
// is total, so a run is the same to the bit every time.
type engine struct {
	now    time.Duration // since the epoch of the simulation
	seq    uint64
	events eventHeap
}

type event struct {
	at  time.Duration
	seq uint64
	run func()
}

// at plans f for time t, or for now if t is past.
func (e *engine) at(t time.Duration, f func()) {
	e.seq++
	heap.Push(&e.events, event{max(t, e.now), e.seq, f})
}

func (e *engine) after(d time.Duration, f func()) { e.at(e.now+d, f) }

// epoch is where virtual time begins, in Unix seconds.
const epoch = 1_000_000_000

// time returns now as policies see it.
func (e *engine) time() time.Time { return time.Unix(epoch, 0).Add(e.now) }

// run runs the events up to the given time.
func (e *engine) run(until time.Duration) {
	for len(e.events) > 0 && e.events[0].at <= until {
		next := e.events[0]
		heap.Pop(&e.events)
		e.now = next.at
		next.run()
	}
	e.now = until
}

type eventHeap []event

func (h eventHeap) Len() int      { return len(h) }
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h eventHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].seq < h[j].seq
}
func (h *eventHeap) Push(x any) {
	if ev, ok := x.(event); ok {
		*h = append(*h, ev)
	}
}
func (h *eventHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return last
}
