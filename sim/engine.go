package sim

import "time"

// An engine runs events in the order of their time; events of one time in the order in which they were planned. That order
// is total, so a run is the same to the bit every time.
type engine struct {
	now    time.Duration // since the epoch of the simulation
	skew   time.Duration // how far the clock that policies see has jumped
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
	e.events.push(event{max(t, e.now), e.seq, f})
}

func (e *engine) after(d time.Duration, f func()) { e.at(e.now+d, f) }

// epoch is where virtual time begins, in Unix seconds.
const epoch = 1_000_000_000

// time returns now as policies see it.
func (e *engine) time() time.Time { return time.Unix(epoch, 0).Add(e.now + e.skew) }

// run runs the events up to the given time.
func (e *engine) run(until time.Duration) {
	for len(e.events) > 0 && e.events[0].at <= until {
		next := e.events.pop()
		e.now = next.at
		next.run()
	}
	e.now = until
}

// An eventHeap is a binary heap. That of the standard library would allocate for each event.
type eventHeap []event

func (a event) before(b event) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.seq < b.seq
}

func (h *eventHeap) push(ev event) {
	*h = append(*h, ev)
	all := *h
	i := len(all) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !ev.before(all[up]) {
			break
		}
		all[i] = all[up]
		i = up
	}
	all[i] = ev
}

func (h *eventHeap) pop() event {
	all := *h
	first, last := all[0], all[len(all)-1]
	all[len(all)-1] = event{}
	all = all[:len(all)-1]
	*h = all
	if len(all) == 0 {
		return first
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= len(all) {
			break
		}
		if right := down + 1; right < len(all) && all[right].before(all[down]) {
			down = right
		}
		if !all[down].before(last) {
			break
		}
		all[i] = all[down]
		i = down
	}
	all[i] = last
	return first
}
