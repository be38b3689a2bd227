package sim

import (
	"math"
	"time"
)

// A task is a goroutine that wants CPU.
type task struct {
	left  time.Duration // CPU it still wants
	slice time.Duration // CPU time before it yields
	since time.Duration // when it became runnable
	cpu   time.Duration // of the slice that it runs
	done  func()
	next  func() // ends that slice
	after *task  // of the spare ones
}

// processors are the cores of a host with one queue of runnable goroutines, as the Go scheduler gives them turns.
type processors struct {
	e         *engine
	cores     int
	idle      int
	queue     []*task // a ring would be faster; head makes popping cheap
	head      int
	speed     float64       // speed of a core; 1 is normal, less while a neighbour takes its share
	stopped   time.Duration // time until which no core runs: a pause, or a used-up quota
	resuming  bool
	used      time.Duration // total CPU time
	quota     float64       // CPUs; 0 is none
	period    time.Duration
	inPeriod  time.Duration // CPU time used in this period
	periodEnd time.Duration
	periods   uint64
	throttles uint64
	throttled time.Duration
	waits     waits
	spare     *task // tasks to use again
}

// add makes a goroutine runnable that needs d of CPU and then calls done.
func (p *processors) add(d, slice time.Duration, done func()) {
	t := p.spare
	if t == nil {
		t = &task{}
		t.next = func() { p.end(t) }
	} else {
		p.spare = t.after
	}
	t.left, t.slice, t.since, t.done = d, slice, p.e.now, done
	p.queue = append(p.queue, t)
	p.dispatch()
}

// dispatch gives idle cores to waiting goroutines.
func (p *processors) dispatch() {
	for p.idle > 0 && p.head < len(p.queue) {
		if p.blocked() {
			return
		}
		t := p.queue[p.head]
		p.queue[p.head] = nil
		if p.head++; p.head > 1024 && p.head*2 > len(p.queue) {
			p.queue = append(p.queue[:0], p.queue[p.head:]...)
			p.head = 0
		}
		p.idle--
		p.waits.record(p.e.now - t.since)
		p.run(t)
	}
}

// run gives t one slice.
func (p *processors) run(t *task) {
	t.cpu = min(t.left, t.slice)
	p.inPeriod += t.cpu
	p.e.after(time.Duration(float64(t.cpu)/p.speed), t.next)
}

// end takes t off its core, and puts it at the end of the queue if it needs more.
func (p *processors) end(t *task) {
	p.used += t.cpu
	p.idle++
	if t.left -= t.cpu; t.left > 0 {
		t.since = p.e.now
		p.queue = append(p.queue, t)
	} else {
		done := t.done
		t.done, t.after, p.spare = nil, p.spare, t
		done()
	}
	p.dispatch()
}

// blocked reports whether no core may run now, and schedules the time when one may.
func (p *processors) blocked() bool {
	p.roll()
	if p.quota > 0 && p.inPeriod >= time.Duration(p.quota*float64(p.period)) && p.stopped < p.periodEnd {
		p.throttles++
		p.throttled += p.periodEnd - p.e.now
		p.stopped = p.periodEnd
	}
	if p.e.now >= p.stopped {
		return false
	}
	if !p.resuming {
		p.resuming = true
		p.e.at(p.stopped, func() {
			p.resuming = false
			p.dispatch()
		})
	}
	return true
}

// roll begins the quota's next period when it is due. Use beyond the quota is carried over as debt.
func (p *processors) roll() {
	if p.quota == 0 || p.e.now < p.periodEnd {
		return
	}
	n := int64(p.e.now-p.periodEnd)/int64(p.period) + 1
	p.periods += uint64(n)
	p.periodEnd += time.Duration(n * int64(p.period))
	p.inPeriod = max(0, p.inPeriod-time.Duration(float64(n)*p.quota*float64(p.period)))
}

// stop keeps all cores from starting anything for d, as a pause of the garbage collector does.
func (p *processors) stop(d time.Duration) { p.stopped = max(p.stopped, p.e.now+d) }

// wake runs then when the process runs: a wait that ends while it is stopped is noticed afterwards.
func (p *processors) wake(then func()) {
	if p.e.now >= p.stopped {
		then()
		return
	}
	p.e.at(p.stopped, func() { p.wake(then) })
}

// capacity is how many CPUs there are to use.
func (p *processors) capacity() float64 {
	c := float64(p.cores)
	if p.quota > 0 {
		c = math.Min(c, p.quota)
	}
	return c
}

// resize changes the number of cores; 0 changes nothing. A core that is taken away ends its slice.
func (p *processors) resize(cores int) {
	if cores == 0 {
		return
	}
	p.idle += cores - p.cores
	p.cores = cores
	p.dispatch()
}
