package law

import (
	"math"
	"slices"
)

// A cpu bounds the requests in flight while the CPU is short: pass × latency, plus the requests that keep the CPU full.
type cpu struct {
	busy    bool // the CPU is short: it is full, goroutines wait for it, or a signal says so
	full    bool // its usage is at the threshold
	limit   float64
	left    float64    // seconds for which the bound stays in force
	reason  Reason     // the reason: CPU, or Signal if only a signal says so
	waits   [5]float64 // the last waits for a processor
	next    int        // the oldest of them
	waited  float64    // the least of them, which shows a standing queue
	drop    float64    // share that is refused however few are in flight
	stood   float64    // seconds in which the process stood still since the last sample of the CPU
	passed  float64    // seconds since then
	stretch float64    // integral: the room beyond pass × latency, as a multiple of what holds at first
	squeeze float64    // the same below pass × latency
}

// busyUsage is the usage below which the CPU has time to spare.
const busyUsage = 0.93

func (c *cpu) inForce() bool { return c.left > 0 }

// wait records how long goroutines wait for a processor, and sets the dropped share accordingly (PIE, RFC 8033).
func (c *cpu) wait(p *Params, r *Reading, credit float64) {
	if !r.WaitFresh {
		return
	}
	before, target := c.waited, 4*p.Wait
	c.waits[c.next] = math.Max(0, r.Wait-r.Pause-credit)
	c.next = (c.next + 1) % len(c.waits)
	c.waited = slices.Min(c.waits[:])
	c.drop += (0.02*(c.waited-target) + 0.2*(c.waited-before)) / (2 * target) * math.Min(1, 0.1+4*c.drop)
	c.drop = math.Min(math.Max(c.drop, 0), 0.98)
}

// step computes the limit for the reading r.
func (c *cpu) step(l *Law, r *Reading) {
	p, h := &l.P, &l.history
	typical := math.Max(l.latency.typical, l.flow.implied)
	if typical == 0 {
		typical = l.latency.least
	}
	c.passed += r.Dt
	if r.CPUKnown && r.CPUFresh {
		c.integrate(l, r)
	}
	c.limit = math.Inf(1)
	if h.pass > 0 && typical > 0 {
		c.limit = c.bound(l, r, typical)
	}
	if unknown := h.pass == 0 || typical == 0; unknown && r.CPUKnown && r.CPU >= p.Full && r.Wait-r.Pause >= p.Wait {
		c.limit = 0 // so many share the CPU that none has been answered yet: the minimum limit holds until some are
	}
	threshold := l.o.Threshold
	if l.latency.typical == 0 { // the least latency is a guess: only a full CPU makes up for that
		threshold = math.Max(threshold, p.Full)
	}
	c.full = r.CPUKnown && (r.CPU >= threshold || r.Smoothed >= threshold)
	busy := c.full || c.waited >= p.Wait
	c.busy = busy || r.Signal
	c.left -= r.Dt
	over := busy && (typical > 0 || c.limit == 0) && (r.InFlight > c.limit || c.drop > 0 || l.refusing())
	if over || r.Signal || c.inForce() && l.refusing() && r.CPUKnown { // if it is known, the integral lets more in while it has time
		c.left = l.o.CoolDown
	}
	switch {
	case busy:
		c.reason = CPU
	case r.Signal:
		c.reason = Signal
		if math.IsInf(c.limit, 1) {
			c.limit = 0 // nothing is known: the least limit holds
		}
	}
	if !c.inForce() {
		c.drop = 0
	}
}

// bound returns the limit for the typical latency: pass × latency, and the room that the integral has found.
func (c *cpu) bound(l *Law, r *Reading, typical float64) float64 {
	p, h := &l.P, &l.history
	a := math.Max(2*p.Slack*p.Part, c.stretch*(2*p.Slack+typical+l.credit.time+r.Pause))
	if l.o.SLO > 0 {
		a = math.Min(a, math.Max(objective*l.o.SLO-typical, 0))
	}
	rate := h.rate * r.Mix
	x := c.squeeze * (h.pass*r.Mix/l.latency.ran(r.Running)*typical + rate*math.Max(0, a-c.waited))
	guess := l.latency.typical == 0 || l.latency.guessed // of a queue, perhaps
	if l.quota.bites() && !guess {                       // fewer would not keep the CPU busy for as long as the quota lets it run
		x = math.Max(x, rate*p.Tight*typical/l.latency.ran(l.quota.running()))
	}
	return x + math.Sqrt(x)
}

// used returns the usage in the time in which the process ran: a process that stood still had no time to spare.
func (c *cpu) used(r *Reading) float64 {
	ran := math.Max(1-c.stood/math.Max(c.passed, 1e-9), 0.1)
	c.stood, c.passed = 0, 0
	return math.Min(r.CPU/ran, 1)
}

// integrate adjusts the room: it shrinks while the CPU is full although much is refused, the faster the more it is, and grows while the
// CPU has time to spare although something is refused.
func (c *cpu) integrate(l *Law, r *Reading) {
	p, usage := &l.P, c.used(r)
	e := 0.25 / math.Max(0.25, l.latency.known()) // no faster than the requests in flight are replaced
	// Of few answers, a second says too little.
	enough := math.Min(long, 2*p.Enough/math.Max(l.history.rate, 1e-9))
	recent, _, _ := l.history.last(math.Max(math.Max(1, 2*l.flow.stay), enough))
	heavy := recent.share() >= p.Heavy
	queued := recent.ended >= p.Enough && recent.queued()
	if queued && heavy && c.inForce() && l.latency.typical == 0 && l.latency.least > 0 && !r.Signal {
		l.flow.guess(l) // all that is known is the latency of a queue
	}
	switch {
	case usage >= 0.99 && heavy && c.inForce():
		c.squeeze = math.Max(c.squeeze*math.Pow(0.9, e), 0.125)
	case usage < busyUsage:
		c.squeeze = math.Min(c.squeeze*math.Pow(1.6, e), 1)
	case usage < p.Full:
		c.squeeze = math.Min(c.squeeze*math.Pow(1.15, e), 1)
	}
	switch {
	case usage >= p.Full && l.refusing() && heavy:
		c.stretch *= math.Pow(1-recent.share(), 3*e)
	case usage < busyUsage && l.refusing() && c.inForce() && !r.Signal: // a signal is no reason to fill the CPU
		c.stretch = math.Min((c.stretch+0.1*e)*math.Pow(1.6, e), 1000)
	default:
		c.stretch += 0.1 * (1 - c.stretch)
	}
}
