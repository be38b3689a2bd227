package breaker

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/stripe"
	"github.com/spillway-go/spillway/stats"
)

// errZero is what zero values answer.
var errZero = &spillway.Rejection{Policy: "breaker", Reason: reasonZero}

// A Breaker is a [spillway.Policy] that lets calls through while closed, refuses them while open, and lets a few probes
// through while half-open to decide whether to close. It is the circuit breaker of Nygard's "Release It!".
//
// It is made by [New]; the zero Breaker denies everything. It is safe for concurrent use, owns no goroutine and no timer, and
// needs no Close: requests drive it.
// While it is closed, requests take no lock; while it is open, a refusal only reads.
type Breaker struct {
	base  base
	phase atomic.Pointer[phase]
	opts  atomic.Pointer[Options]
	ring  *ring
	_     [stripe.Size]byte // fields that failures write are kept apart from fields that every call reads

	streak atomic.Int64 // failures in a row
	_      [stripe.Size - 8]byte

	refused [numWhys]stats.Counter
	stale   atomic.Int64
	panics  atomic.Int64
	vetoed  atomic.Int64
	opened  openings

	mu      sync.Mutex // guards the rest; not taken while closed
	machine machine
	wouldAt instant // when MetricsOnly last reported
	queue   []Event // not delivered yet
	telling bool    // a goroutine is delivering
	veto    vetoer  // of the Keyed; nil outside
	charged bool    // the Keyed counts this Breaker as open
}

// A vetoer bounds how many breakers may be open at once, and counts their openings.
type vetoer interface {
	mayOpen() bool
	closed()
	opened(reason string)
}

// New returns a closed Breaker with the given options; nil means the defaults. It returns an error that names the
// invalid field.
func New(o *Options) (*Breaker, error) {
	if o == nil {
		o = &Options{}
	}
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if opts.Seed == 0 {
		opts.Seed = rand.Uint64()
	}
	b := &Breaker{
		ring:    newRing(opts.Window, opts.Buckets, opts.SlowCall),
		machine: newMachine(opts.Seed),
		wouldAt: longAgo,
	}
	b.opts.Store(&opts)
	b.phase.Store(b.newPhase(longAgo))
	return b, nil
}

// The ticket of a call holds the generation in its upper bits and the slot in which it began below. The ticket of a
// probe has its lease instead of the slot. The uppermost bit belongs to the [Keyed].
const (
	probeBit   spillway.Ticket = 1 << 62
	genShift                   = 32
	ticketGens                 = maxGen
)

func ticket(gen uint32, low int64) spillway.Ticket {
	return spillway.Ticket(gen)<<genShift | spillway.Ticket(uint32(low))
}

// genOf returns the generation of a ticket.
func genOf(t spillway.Ticket) uint32 { return uint32(t>>genShift) & ticketGens }

// Admit lets r through if the Breaker is closed, or half-open with room for a probe. Otherwise it returns a shared
// *[spillway.Rejection] whose RetryAfter is the time that remains, renewed at most every 100 ms. Its Reason is "open",
// "half-open", "closing" during a ramp, or "forced-open".
func (b *Breaker) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	p := b.phase.Load()
	if p == nil {
		return 0, errZero
	}
	now := b.base.instant(r.Arrived)
	if p.admits && now < instant(p.hangDue.Load()) {
		return b.begin(p, now), nil
	}
	return b.admit(p, now)
}

func (b *Breaker) begin(p *phase, now instant) spillway.Ticket {
	return ticket(p.gen, b.ring.begin(now))
}

// admit is Admit unless the Breaker is simply closed.
func (b *Breaker) admit(p *phase, now instant) (spillway.Ticket, error) {
	if p.admits {
		b.lookForHangs(p, now)
		p = b.phase.Load()
	}
	switch {
	case p.admits:
		return b.begin(p, now), nil
	case now < instant(p.shut.Load()):
		return 0, b.refuse(p, now)
	case p.state != Closed:
		return b.admitProbe(now)
	case now >= p.rampEnd:
		return b.begin(b.endRamp(p), now), nil
	case p.rampAdmits(now):
		b.lookForHangs(p, now)
		return b.begin(p, now), nil
	}
	return 0, b.refuse(p, now)
}

// admitProbe decides on a request while the Breaker is half-open, or after its open time.
func (b *Breaker) admitProbe(now instant) (spillway.Ticket, error) {
	b.mu.Lock()
	m := &b.machine
	m.settle(b.opts.Load(), now)
	id, ok := m.probe(b.opts.Load(), now)
	p := b.publish(now)
	b.unlock()
	switch {
	case ok:
		return ticket(p.gen, int64(id)) | probeBit, nil
	case p.state == Closed:
		return b.admit(p, now)
	}
	return 0, b.refuse(p, now)
}

// Done takes the outcome of a call that Admit let through. A call from before the last change of state counts only in
// [Stats.Stale].
//
// A RetryAfter lengthens the current or the next open time, up to [Options.MaxOpen] in total. It does so whatever the
// outcome, even if it comes late. It does not open the Breaker.
func (b *Breaker) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	p := b.phase.Load()
	if p == nil {
		return
	}
	now := b.base.instant(r.Arrived).after(res.Latency)
	if t&probeBit != 0 {
		b.doneProbe(now, t, res)
		return
	}
	if res.Outcome != spillway.Success || res.RetryAfter > 0 || !p.sameGen(t) || res.Latency > p.slowCall || p.calls != nil {
		b.done(p, now, t, res)
		return
	}
	if !b.ring.succeed(now, uint32(t)) {
		b.ring.finish(b.startOf(t))
		b.count(p, b.ring.slot(now), 0)
	}
	if b.streak.Load() != 0 {
		b.streak.Store(0)
	}
}

// startOf returns the slot in a ticket: the one nearest to the newest with these lower bits.
func (b *Breaker) startOf(t spillway.Ticket) int64 {
	newest := b.ring.newest.Load()
	return newest + int64(int32(uint32(t)-uint32(newest)))
}

// done is Done unless the outcome is a quick success in a window of time.
func (b *Breaker) done(p *phase, now instant, t spillway.Ticket, res spillway.Result) {
	if p.foreign(t) {
		b.stale.Add(1)
		return
	}
	b.ring.finish(b.startOf(t))
	if res.Outcome == spillway.Refused {
		return
	}
	if res.RetryAfter > 0 {
		b.hear(now, res.RetryAfter)
	}
	if !p.sameGen(t) {
		b.stale.Add(1)
		return
	}
	v := p.verdict(res)
	slot := b.ring.slot(now)
	if p.calls == nil || v&ignored != 0 {
		b.count(p, slot, v)
	} else {
		p.calls.add(v)
	}
	switch {
	case v&ignored != 0:
		return
	case v&failed != 0:
		b.streak.Add(1)
	case b.streak.Load() != 0:
		b.streak.Store(0)
	}
	if v != 0 {
		b.judge(p, now)
	}
}

// count counts one outcome by time.
func (b *Breaker) count(p *phase, slot int64, v verdict) {
	if b.ring.add(slot, v) && p.hangDue.Load() != int64(never) {
		p.hangDue.Store(int64(longAgo)) // it was computed from a time that must be wrong
	}
}

// doneProbe ends a probe.
func (b *Breaker) doneProbe(now instant, t spillway.Ticket, res spillway.Result) {
	b.mu.Lock()
	m, o := &b.machine, b.opts.Load()
	m.settle(o, now)
	if res.RetryAfter > 0 && res.Outcome != spillway.Refused {
		m.hear(o, now, res.RetryAfter)
	}
	good := genOf(t) == m.gen && m.release(uint32(t))
	v := b.phase.Load().verdict(res)
	switch {
	case res.Outcome == spillway.Refused:
	case !good:
		b.stale.Add(1)
	case v&ignored == 0:
		m.probed(o, now, v == 0, byProbe)
	}
	b.publish(now)
	b.unlock()
}

// judge opens the Breaker if a rule says so.
func (b *Breaker) judge(p *phase, now instant) {
	if p.mode == ForcedClosed {
		return
	}
	if why := b.reached(p, now); why != "" {
		b.trip(p.gen, now, why)
	}
}

// reached returns the reason to open, or "".
func (b *Breaker) reached(p *phase, now instant) string {
	o := b.opts.Load()
	if o.Consecutive != Off && b.streak.Load() >= int64(o.Consecutive) {
		return byConsecutive
	}
	c := b.counts(p, now)
	total := c.successes + c.failures
	if total >= int64(o.MinCalls) && rateOf(o.FailureRate).reachedBy(c.failures, total) {
		return byFailureRate
	}
	if o.SlowCall == 0 || o.SlowRate == Off {
		return ""
	}
	hung := b.hung(p, o, now)
	if total += hung; total >= int64(o.MinCalls) && rateOf(o.SlowRate).reachedBy(c.slow+hung, total) {
		return bySlowRate
	}
	return ""
}

// counts returns the outcomes in the window.
func (b *Breaker) counts(p *phase, now instant) counts {
	c := b.ring.sum(now)
	if p.calls != nil {
		ignored := c.ignored
		c = p.calls.sum()
		c.ignored = ignored
	}
	return c
}

// hung returns how many calls have run for longer than SlowCall, but for less than SlowCall plus a window.
func (b *Breaker) hung(p *phase, o *Options, now instant) int64 {
	last := b.lastSlow(o, now)
	return max(b.ring.inFlight(max(last-b.ring.buckets+1, p.hangFrom), last), 0)
}

// lastSlow returns the newest slot in which every running call is slow at now.
func (b *Breaker) lastSlow(o *Options, now instant) int64 {
	at := now - instant(o.SlowCall)
	slot := b.ring.slotOf(at)
	if b.ring.end(slot) > at {
		slot--
	}
	return slot
}

// lookForHangs checks the rules once for each slot that has become old enough to hold hanging calls.
func (b *Breaker) lookForHangs(p *phase, now instant) {
	due := p.hangDue.Load()
	if now < instant(due) {
		return
	}
	o := b.opts.Load()
	next := b.ring.end(b.lastSlow(o, now) + 1).after(o.SlowCall)
	if p.hangDue.CompareAndSwap(due, int64(next)) {
		b.ring.slot(now)
		b.judge(p, now)
	}
}

// trip opens the Breaker if it has not changed since the reason was found.
func (b *Breaker) trip(gen uint32, now instant, why string) {
	b.mu.Lock()
	defer b.unlock()
	m, o := &b.machine, b.opts.Load()
	switch {
	case m.gen != gen || m.state != Closed:
		return
	case m.mode == MetricsOnly:
		if b.wouldAt == longAgo || now >= b.wouldAt.after(o.Window) {
			b.wouldAt = now
			m.changes = append(m.changes, change{at: now, from: Closed, to: Closed, reason: why, wouldOpen: true})
		}
		return
	case b.veto != nil && !b.charged && !b.veto.mayOpen():
		b.vetoed.Add(1)
		return
	}
	b.charged = true
	m.open(o, now, why)
	b.publish(now)
}

// hear applies a server's RetryAfter.
func (b *Breaker) hear(now instant, peace time.Duration) {
	b.mu.Lock()
	defer b.unlock()
	m, o := &b.machine, b.opts.Load()
	m.settle(o, now)
	m.hear(o, now, peace)
	b.publish(now)
}
