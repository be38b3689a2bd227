package breaker

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
)

// A phase is the part of a [Breaker] that requests read: state, generation and deadline, published as one value.
type phase struct {
	state    State
	mode     Mode
	gen      uint32
	first    uint32 // the generation in which the Breaker began
	admits   bool   // closed, and no ramp
	since    instant
	slowCall time.Duration // slower calls count as slow; MaxInt64 if no call is slow
	reason   uint8         // of a refusal: a place in refusalReasons
	rampFrom instant
	rampEnd  instant // longAgo without a ramp
	rampStep instant
	hangFrom int64       // the first slot whose calls may be found hanging
	calls    *callWindow // nil if time decides

	// hangDue is when to look for hanging calls again, or never if no rule needs them.
	hangDue atomic.Int64
	// shut is the time until which no call goes through.
	shut atomic.Int64
	// asked counts the calls that came during the ramp.
	asked   atomic.Int64
	refusal atomic.Pointer[refusal]
	name    string // of the Breaker
}

func (p *phase) sameGen(t spillway.Ticket) bool { return genOf(t) == p.gen }

// foreign reports whether a ticket has a generation that this Breaker never had, because a Keyed forgot the Breaker
// that issued it.
func (p *phase) foreign(t spillway.Ticket) bool {
	since := func(gen uint32) uint32 { return (gen + maxGen - p.first) % maxGen }
	return since(genOf(t)) > since(p.gen)
}

// verdict classes an outcome.
func (p *phase) verdict(res spillway.Result) (v verdict) {
	switch res.Outcome {
	case spillway.Success:
	case spillway.Failure, spillway.Dropped:
		v = failed
	default:
		return ignored
	}
	if res.Latency > p.slowCall {
		v |= slow
	}
	return v
}

// publish makes the state of the machine known if it has changed. b.mu is held.
func (b *Breaker) publish(now instant) *phase {
	old, m := b.phase.Load(), &b.machine
	if m.gen == old.gen {
		until := int64(b.shutUntil())
		if old.shut.Swap(until) != until && m.state == Open {
			old.refusal.Store(nil) // its RetryAfter is older than a server's request for more time
		}
		return old
	}
	if m.state == Closed {
		b.ring.forget()
		b.streak.Store(0)
		b.wouldAt = longAgo
		if b.charged {
			b.charged = false
			if b.veto != nil {
				b.veto.closed()
			}
		}
	}
	p := b.newPhase(now)
	b.phase.Store(p)
	return p
}

// newPhase returns a phase that shows the machine. b.mu is held, or New has not returned b yet.
func (b *Breaker) newPhase(now instant) *phase { return b.newPhaseAfter(b.phase.Load(), now) }

// newPhaseAfter is newPhase with old as the current phase, or nil if there is none.
func (b *Breaker) newPhaseAfter(old *phase, now instant) *phase {
	m, o := &b.machine, b.opts.Load()
	p := &phase{
		name:  o.Name,
		state: m.state, mode: m.mode, gen: m.gen, first: m.first, since: m.since,
		slowCall: math.MaxInt64, reason: whyOpen, rampFrom: longAgo, rampEnd: longAgo, hangFrom: math.MinInt64,
	}
	if o.SlowCall > 0 {
		p.slowCall = o.SlowCall
	}
	sameGen := old != nil && old.gen == m.gen
	switch {
	case sameGen:
		p.inherit(old)
	case m.state == Closed:
		b.beginClosed(p, old == nil)
	case old != nil:
		p.calls = old.calls
	}
	if m.mode == ForcedOpen {
		p.reason = whyForced
	} else if m.state == HalfOpen {
		p.reason = whyProbing
	}
	p.admits = m.state == Closed && p.rampEnd <= now
	p.hangDue.Store(int64(never))
	if o.SlowCall > 0 && o.SlowRate != Off && m.mode != ForcedClosed {
		p.hangDue.Store(int64(longAgo))
	}
	p.shut.Store(int64(b.shutUntil()))
	return p
}

// inherit takes over what belongs to a generation.
func (p *phase) inherit(old *phase) {
	p.hangFrom, p.calls = old.hangFrom, old.calls
	p.rampFrom, p.rampEnd, p.rampStep = old.rampFrom, old.rampEnd, old.rampStep
	p.reason = old.reason
}

// beginClosed sets up a phase in which calls go through.
func (b *Breaker) beginClosed(p *phase, first bool) {
	m, o := &b.machine, b.opts.Load()
	if o.WindowCalls > 0 {
		p.calls = &callWindow{places: make([]atomic.Uint32, o.WindowCalls)}
	}
	switch {
	case first:
	case m.reason == byProbeSuccess:
		// Calls from before the opening began at least one open time ago, so this slot only holds calls that count.
		p.hangFrom = b.ring.slotOf(m.since)
		if o.Ramp > 0 {
			p.rampFrom, p.rampEnd = m.since, m.since.after(o.Ramp)
			p.rampStep = max(instant(o.Ramp)/instant(len(rampShares)), 1)
			p.reason = whyRamp
		}
	default:
		p.hangFrom = b.ring.slotOf(m.since) + 1
	}
}

// shutUntil returns the time until which no call goes through.
func (b *Breaker) shutUntil() instant {
	m := &b.machine
	switch {
	case m.state == Open:
		return m.deadline
	case m.state == HalfOpen && len(m.leases) >= b.opts.Load().Probes:
		return m.leases[m.firstLease()].end
	}
	return longAgo
}

// rampShares are the shares of the calls, in percent, that go through in each third of a ramp.
var rampShares = [...]int64{10, 25, 50}

// share returns the percentage of calls that goes through at now.
func (p *phase) share(now instant) int64 {
	switch {
	case p.state != Closed:
		return 0
	case now >= p.rampEnd:
		return 100
	}
	step := max(now-p.rampFrom, 0) / p.rampStep
	return rampShares[min(int(step), len(rampShares)-1)]
}

// rampAdmits reports whether one more call goes through. It spreads admitted calls evenly and admits the first one at
// once.
func (p *phase) rampAdmits(now instant) bool {
	n, share := p.asked.Add(1)-1, p.share(now)
	return (n*share+99)/100 != ((n+1)*share+99)/100
}

// endRamp lets everything through, and returns the current phase.
func (b *Breaker) endRamp(old *phase) *phase {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.phase.Load(); p != old {
		return p
	}
	p := b.newPhase(old.rampEnd)
	b.phase.Store(p)
	return p
}

// renewEvery is how old the RetryAfter of a refusal may be.
const renewEvery = instant(100 * time.Millisecond)

// A refusal is a Rejection and the time until which its RetryAfter is right.
type refusal struct {
	rejection spillway.Rejection
	until     instant
}

// refuse counts a refusal and returns the shared Rejection.
func (b *Breaker) refuse(p *phase, now instant) error {
	b.refused[p.reason].Add(1)
	if r := p.refusal.Load(); r != nil && now < r.until {
		return &r.rejection
	}
	return p.renew(now)
}

func (p *phase) renew(now instant) error {
	r := &refusal{rejection: spillway.Rejection{Policy: p.name, Reason: refusalReasons[p.reason]}, until: never}
	until := instant(p.shut.Load())
	if p.state == Closed {
		until = p.rampEnd
	}
	if until != never {
		r.until = now + renewEvery
		r.rejection.RetryAfter = time.Duration(max(until-max(now, p.since), 0))
	}
	p.refusal.Store(r)
	return &r.rejection
}
