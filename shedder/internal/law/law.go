package law

import (
	"math"
	"time"
)

// A Reading holds the values of sensors and counters at one step. Times are in seconds.
type Reading struct {
	Dt       float64 // since the last step
	InFlight float64 // now

	// Since the last step.
	Admitted, Refused float64
	Left              float64 // admitted requests that ended, whatever their outcome
	Ended             float64 // those of them that were answered or failed
	Answered          float64 // the successes among them
	Latency           float64 // summed over Answered
	Quick             float64 // those of Answered that took less than the Quick of the last Verdict

	CPU      float64 // raw usage, 0..1
	Smoothed float64
	CPUKnown bool
	CPUFresh bool    // no earlier step has seen it
	CPUs     float64 // that the process may use; 0 if unknown

	Wait      float64 // of goroutines for a processor
	WaitFresh bool
	Pause     float64 // how long a CPU quota stops the process in a period, while it does
	Running   float64 // the part of the time that the quota leaves, in (0, 1]

	Signal bool // one of the user's signals says overloaded

	// Mix is how long the present requests take, as a multiple of what those of the calm service take on average, each in
	// the calm service; RefusedMix is that of the refused ones, as a multiple of the present ones. A value of 0 is 1.
	Mix, RefusedMix float64
}

// tame replaces impossible values of a broken sensor: a usage that is not a number becomes unknown, and an invalid time becomes
// 0.
func (r *Reading) tame() {
	r.CPUKnown = r.CPUKnown && !math.IsNaN(r.CPU) && !math.IsNaN(r.Smoothed)
	r.CPU, r.Smoothed = within(r.CPU, 1), within(r.Smoothed, 1)
	r.CPUs = within(r.CPUs, 1<<20)
	r.Wait, r.Pause = within(r.Wait, 1e6), within(r.Pause, 1e6)
	if !(r.Running > 0 && r.Running <= 1) {
		r.Running = 1
	}
	r.Running = math.Max(r.Running, 0.01)
	if !(r.Mix > 0) {
		r.Mix = 1
	}
	if !(r.RefusedMix > 0) {
		r.RefusedMix = 1
	}
}

func within(x, most float64) float64 {
	if !(x >= 0) {
		return 0
	}
	return math.Min(x, most)
}

// A Reason says which bound is in force.
type Reason uint8

// The reasons.
const (
	Calm   Reason = iota
	Full          // Little's law: more are in flight than the service answers within its typical latency
	CPU           // the CPU is short
	Signal        // a signal of the user's
)

// A Verdict decides about admissions.
type Verdict struct {
	Quick  float64 // seconds: an answer that takes less did not wait in a queue
	Limit  float64 // greatest number in flight; +Inf is none
	Drop   float64 // share of requests that is refused, however few are in flight
	Reason Reason  // why requests are refused: Calm while none is
}

// A Law steers a limit. The zero Law is not valid: use New.
type Law struct {
	P Params
	o Options

	history   history
	latency   latency
	flow      flow
	cpu       cpu
	quota     quota
	credit    credit
	lingering lingering
	quiet     float64 // seconds since the last refusal
	last      Verdict
	little    bool // Little's law at any CPU is the lesser bound
}

// New returns a Law with the given constants.
func New(p Params) *Law {
	l := &Law{P: p, quiet: math.Inf(1), last: Verdict{Limit: math.Inf(1)}}
	l.flow.wide, l.flow.down, l.lingering.least = 1, math.Inf(1), math.Inf(1)
	l.cpu.stretch, l.cpu.squeeze, l.cpu.left = 1, 1, math.Inf(-1)
	return l
}

// Tune replaces the options. What the law has learnt stays.
func (l *Law) Tune(o Options) { l.o = o }

// Resume begins with the rate and the typical latency in seconds that another process has learnt. They may be stale, so the
// rate counts until a window is full, and the latency is measured again in an overload.
func (l *Law) Resume(rate, typical float64) {
	l.history.earlier, l.history.rate, l.history.pass = rate, math.Max(l.history.rate, rate), math.Max(l.history.pass, rate)
	l.latency.believe(typical)
	l.flow.again.due = true
}

// Rate returns the rate of answers per second that the law goes by.
func (l *Law) Rate() float64 { return math.Max(l.history.rate, l.flow.held) }

// Pass returns the greatest rate of answers over one latency, per second.
func (l *Law) Pass() float64 { return l.history.pass }

// Latency returns the typical latency; 0 if it is not known.
func (l *Law) Latency() time.Duration { return time.Duration(l.latency.typical * 1e9) }

// Step advances the law by r.Dt and returns the new verdict.
func (l *Law) Step(r *Reading) Verdict {
	r.tame()
	if !l.o.CPUOnly {
		l.lingering.discount(r)
	}
	if r.Refused > 0 {
		l.quiet = 0
	} else {
		l.quiet += r.Dt
	}
	b := bucket{
		admitted: r.Admitted, refused: r.Refused * r.RefusedMix, left: r.Left, ended: r.Ended, answered: r.Answered, latency: r.Latency,
		quick: r.Quick, inside: r.InFlight * r.Dt, stood: l.stood(r),
	}
	l.history.n = r.InFlight
	l.quota.step(r)
	l.latency.left = l.quota.running()
	if !l.flow.full {
		l.latency.glance(&l.P, r.Answered, r.Latency)
	}
	l.history.advance(&l.P, l.o.Window+2*l.flow.implied, &b, r.Dt, l.closed)
	l.credit.step(&l.P, r, b.stood)
	l.cpu.stood += b.stood
	if l.o.CPUOnly {
		l.last = l.letter(r)
	} else {
		l.cpu.wait(&l.P, r, l.credit.time)
		l.flow.step(l, r)
		l.cpu.step(l, r)
		l.last = l.verdict(r)
	}
	l.last.Quick = l.history.quick()
	return l.last
}

// verdict takes the lesser of the limits that are in force.
func (l *Law) verdict(r *Reading) Verdict {
	v := Verdict{Limit: math.Inf(1)}
	least := math.Max(2, l.o.MinLimit)
	l.little = l.flow.limit < v.Limit
	if l.little {
		v.Limit = math.Max(l.flow.limit, least)
		if l.refusing() {
			v.Reason = Full
		}
	}
	if l.cpu.inForce() {
		v.Drop = l.cpu.drop
		if limit := math.Max(l.cpu.limit, l.floor(r)); limit < v.Limit {
			v.Limit, l.little = limit, false
		}
		if !l.little || v.Drop > 0 || r.Signal {
			v.Reason = l.cpu.reason
		}
	}
	v.Limit = math.Min(v.Limit+l.lingering.n, l.o.MaxLimit)
	return v
}

// floor returns the least limit while the CPU is short.
func (l *Law) floor(r *Reading) float64 {
	if l.o.MinLimit > 0 {
		return l.o.MinLimit
	}
	return math.Max(4, 2*math.Ceil(r.CPUs))
}

// letter is the plain rule: while the smoothed CPU usage is at the threshold, and for CoolDown after that, in flight <= pass ×
// rt.
func (l *Law) letter(r *Reading) Verdict {
	c := &l.cpu
	c.left -= r.Dt
	c.busy = r.CPUKnown && r.Smoothed >= l.o.Threshold
	if c.busy || r.Signal {
		c.left, c.reason = l.o.CoolDown, CPU
		if !c.busy {
			c.reason = Signal
		}
	}
	v := Verdict{Limit: math.Inf(1)}
	if c.left > 0 {
		v = Verdict{Limit: math.Max(l.history.pass*l.latency.known(), l.floor(r)), Reason: c.reason}
	}
	v.Limit = math.Min(v.Limit, l.o.MaxLimit)
	return v
}

// refusing reports whether a request was refused in the last 0.3 s.
func (l *Law) refusing() bool { return l.quiet < 0.3 }

// mostly is the part that counts as nearly the whole: of a sample for which the CPU must have been full to explain why its requests
// were slow, of a latency that a window must cover to prove it, of the best rate, which chance has raised, and of the requests that keep a
// full service busy.
const mostly = 0.75

// closed learns from a closed bucket.
func (l *Law) closed(b *bucket) {
	l.flow.fade(l)
	l.flow.pile(l.history.piles(&l.P, l.latency.least))
	l.lingering.close(l)
	if l.cpu.full {
		l.latency.full += span
	}
	taken, full := l.latency.taken+span, l.latency.full // the sample's, if it is finished now
	calm := l.latency.calm >= taken
	stay, pace, ok := l.latency.take(&l.P, b)
	if !ok {
		return
	}
	if l.latency.samples == 0 && !pace { // it fills, or is full
		return
	}
	if l.flow.slowed(&l.latency, stay, pace) {
		l.flow.raise(&l.latency, stay)
		return
	}
	if full > mostly*taken && (l.latency.typical == 0 || stay > l.latency.typical) {
		return // they waited for the CPU
	}
	l.latency.shared = full > taken/2
	l.latency.learn(&l.P, stay, taken)
	l.flow.again.due = !calm || l.latency.guessed
	if !l.latency.queued && later*stay >= l.latency.typical {
		l.flow.before = latency{} // confirmed: it takes about as long, and some did not wait
	}
}
