package breaker

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A machine is the state of a [Breaker] and its rules, free of locks, clocks and windows: a value whose copies are
// independent. To find out its state at some time, let time pass on a copy.
type machine struct {
	mode     Mode
	state    State
	gen      uint32  // changes with every change of state or mode; below maxGen
	first    uint32  // the generation in which the Breaker began
	since    instant // when state changed last
	deadline instant // open: when probes begin
	reason   string  // why state changed last

	openings int     // in a row: the exponent of the next open time
	closedAt instant // since when openings wear off
	hint     instant // a server asked for a pause until then
	draw     float64 // in 0..1, for the next open time: drawn ahead, so that copies agree

	leases    []lease // probes under way
	lastLease uint32
	succeeded int // probes
	failed    int

	src     rand.PCG
	changes []change // not delivered yet
}

// A lease is one probe under way.
type lease struct {
	id  uint32
	end instant
}

// A change is an [Event] in the making.
type change struct {
	at        instant
	from, to  State
	reason    string
	openFor   time.Duration
	wouldOpen bool
}

// maxGen keeps a ticket clear of the value of all bits set, which belongs to wrappers.
const maxGen = 1<<29 - 1

func newMachine(seed uint64) machine {
	m := machine{mode: Auto, state: Closed, since: longAgo, closedAt: longAgo, hint: longAgo, src: *rand.NewPCG(seed, seed)}
	m.draw = m.random()
	return m
}

// copy returns a copy that shares nothing with m.
func (m *machine) copy() machine {
	c := *m
	c.leases = slices.Clone(m.leases)
	c.changes = nil
	return c
}

func (m *machine) random() float64 { return float64(m.src.Uint64()>>11) / (1 << 53) }

// settle applies the passage of time: leases run out and open times end, each at its own time.
func (m *machine) settle(o *Options, now instant) {
	for m.mode == Auto {
		switch {
		case m.state == Open && now >= m.deadline:
			m.enter(HalfOpen, m.deadline, byTime)
		case m.state == HalfOpen && m.expire(o, now):
		default:
			return
		}
	}
}

// expire counts the first lease that has run out by now as a failed probe, and reports whether there was one.
func (m *machine) expire(o *Options, now instant) bool {
	first := m.firstLease()
	if first < 0 || m.leases[first].end > now {
		return false
	}
	end := m.leases[first].end
	m.leases = slices.Delete(m.leases, first, first+1)
	m.probed(o, end, false, byLease)
	return true
}

// firstLease returns the index of the lease that runs out first, or -1.
func (m *machine) firstLease() int {
	first := -1
	for i, l := range m.leases {
		if first < 0 || l.end < m.leases[first].end {
			first = i
		}
	}
	return first
}

// probe admits one call if the machine is half-open and has room, and returns its lease.
func (m *machine) probe(o *Options, now instant) (id uint32, ok bool) {
	if m.state != HalfOpen || len(m.leases) >= o.Probes {
		return 0, false
	}
	m.lastLease++
	m.leases = append(m.leases, lease{m.lastLease, now.after(o.ProbeLease)})
	return m.lastLease, true
}

// release takes back a lease and reports whether it was still good. No two leases have the same id.
func (m *machine) release(id uint32) bool {
	i := slices.IndexFunc(m.leases, func(l lease) bool { return l.id == id })
	if i < 0 {
		return false
	}
	m.leases = slices.Delete(m.leases, i, i+1)
	return true
}

// probed takes the verdict of one probe.
func (m *machine) probed(o *Options, now instant, ok bool, why string) {
	if ok {
		m.succeeded++
	} else {
		m.failed++
	}
	switch {
	case m.failed > 0 && m.tooMany(o):
		m.open(o, now, why)
	case m.succeeded+m.failed >= o.ProbeSuccesses:
		m.closedAt = now
		m.enter(Closed, now, byProbeSuccess)
	}
}

// tooMany reports whether the failed probes already decide, whatever the result of the others.
func (m *machine) tooMany(o *Options) bool {
	if o.ProbeFailureRate == 0 {
		return true
	}
	all := max(o.ProbeSuccesses, m.succeeded+m.failed)
	return rateOf(o.ProbeFailureRate).reachedBy(int64(m.failed), int64(all))
}

// open opens the machine, which is not open.
func (m *machine) open(o *Options, now instant, why string) {
	m.openings = m.openingsAt(o, now)
	d := m.openFor(o)
	m.deadline = now.after(d)
	if m.hint > m.deadline {
		m.deadline = max(m.deadline, min(m.hint, now.after(o.MaxOpen)))
		d = time.Duration(m.deadline - now)
	}
	m.openings = min(m.openings+1, math.MaxInt32)
	m.draw = m.random()
	m.enter(Open, now, why)
	m.changes[len(m.changes)-1].openFor = d
}

// openFor returns the next open time: OpenFor doubled for each opening in a row, with jitter up and down, at most
// MaxOpen.
func (m *machine) openFor(o *Options) time.Duration {
	d := o.OpenFor
	for range m.openings {
		if d > o.MaxOpen/2 {
			d = o.MaxOpen
			break
		}
		d *= 2
	}
	if o.Jitter == Off {
		return d
	}
	low := float64(d) * (1 - o.Jitter)
	high := math.Min(float64(d)*(1+o.Jitter), float64(o.MaxOpen))
	return max(time.Duration(low+m.draw*(high-low)), 1)
}

// openingsAt returns how many openings are remembered at now: one less for each window since the machine closed.
func (m *machine) openingsAt(o *Options, now instant) int {
	if m.state != Closed || m.openings == 0 || now <= m.closedAt {
		return m.openings
	}
	return int(max(int64(m.openings)-int64(now-m.closedAt)/int64(o.Window), 0))
}

// hear applies a server's RetryAfter: it lengthens the current open time or the next one.
func (m *machine) hear(o *Options, now instant, peace time.Duration) {
	m.hint = max(m.hint, now.after(min(peace, o.MaxOpen)))
	if m.state == Open && m.mode == Auto {
		m.deadline = max(m.deadline, min(m.hint, m.since.after(o.MaxOpen)))
	}
}

// setMode changes the mode. After leaving a mode, or with reset, the machine is like new: closed, with nothing
// remembered.
func (m *machine) setMode(now instant, mode Mode) {
	m.mode = mode
	m.restart(now)
	if mode == ForcedOpen {
		m.deadline = never
		m.enter(Open, now, byHand)
		return
	}
	m.enter(Closed, now, byHand)
}

// setState enters the state that an operator wants; after that, outcomes decide again.
func (m *machine) setState(o *Options, now instant, state State, d time.Duration) {
	if state == Closed {
		m.setMode(now, Auto)
		return
	}
	m.mode = Auto
	m.openings = m.openingsAt(o, now)
	if state == Open {
		if d == 0 {
			d = m.openFor(o)
		}
		m.deadline = now.after(d)
		told := len(m.changes)
		m.enter(Open, now, byHand)
		for i := range m.changes[told:] {
			m.changes[told+i].openFor = d
		}
		return
	}
	m.enter(HalfOpen, now, byHand)
}

func (m *machine) restart(now instant) {
	m.openings, m.hint, m.closedAt = 0, longAgo, now
}

// enter sets the state to to, and records the change if the state was different.
func (m *machine) enter(to State, now instant, why string) {
	if m.state != to {
		m.changes = append(m.changes, change{at: now, from: m.state, to: to, reason: why})
	}
	if m.gen++; m.gen >= maxGen {
		m.gen = 0
	}
	m.state, m.since, m.reason = to, now, why
	m.leases, m.succeeded, m.failed = m.leases[:0], 0, 0
}
