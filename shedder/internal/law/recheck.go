package law

import "math"

// A recheck measures the typical latency again if requests may have waited when it was learnt. It empties the service, and then lets
// requests in more slowly than it has answered them. So hardly any of them waits, and their latency is the true one, whether the service
// is full or slow.
type recheck struct {
	due   bool    // requests may have waited
	limit float64 // while it measures; else 0
	begun float64 // requests in flight when it began, while the service empties; 0 from then on
	rate  float64 // of answers before, per second; of what is let in, once the service is empty
	taken float64 // seconds since it began, or since the service was empty
	count float64 // answers since it began, or requests let in since the service was empty
	took  float64 // seconds until the service was empty: no request takes longer
}

// ahead is for how long a verdict holds, in seconds: the limit has room for what may be let in until the next one.
const ahead = 0.02

// step starts, advances and ends a measurement. It reports whether one is under way.
func (c *recheck) step(l *Law, r *Reading, heavy bool) bool {
	f, known := &l.flow, l.latency.typical > 0
	c.taken += r.Dt
	switch {
	case !c.due || !known || f.missing:
		c.limit = 0
	case c.limit == 0:
		if c.starts(l, heavy) {
			c.begin(l, r)
		}
	case c.begun > 0:
		c.empty(l, r)
	default:
		c.let(l, r)
	}
	return c.limit > 0
}

// starts reports whether a measurement starts: of a guess at once, of another latency once the limit has been tight for a while.
func (c *recheck) starts(l *Law, heavy bool) bool {
	p, h, f := &l.P, &l.history, &l.flow
	if rate := math.Max(h.rate, f.held); rate*math.Max(long, f.settled) < p.Expect {
		return false // too few answers to measure
	}
	if l.latency.guessed {
		return heavy || f.full
	}
	return heavy && !l.cpu.busy && l.little && f.wide <= 0.1 && f.settled >= f.stay && h.earlier == 0
}

func (c *recheck) begin(l *Law, r *Reading) {
	rate := math.Max(l.history.rate, l.flow.held)
	*c, l.flow.settled = recheck{due: true, limit: 2, begun: math.Max(r.InFlight, 1), rate: rate}, 0
}

// empty waits until those that were in flight have left, or nine in ten of them, and so few answers come that this is no chance. If others
// stay for long, such as long polls, such a silence is enough. A few may come in spite of the limit, such as those of high priorities. If
// many do, there is nothing to measure.
func (c *recheck) empty(l *Law, r *Reading) {
	p, h := &l.P, &l.history
	c.count += r.Ended
	b, seconds, _ := h.last(math.Max(span, p.Enough*h.uneven/c.rate))
	silent := missing(p, b.ended, c.rate*seconds, h.uneven)
	took := c.taken
	switch {
	case r.InFlight <= 2, silent && r.InFlight <= p.Heavy*c.begun, c.count >= c.begun && r.InFlight <= c.begun/2:
	case c.count >= c.begun:
		*c = recheck{}
		return
	case silent && c.taken >= long:
		took = 0 // others stay, or the service has stopped
	default:
		return
	}
	*c = recheck{due: true, rate: noisy * c.rate, took: took}
	c.let(l, r)
}

// let lets requests in at the rate, until enough of them have been answered. Little's law gives their latency, since a few answers may
// still be those of before. If nothing is answered for longer than a request takes, the service has stopped.
func (c *recheck) let(l *Law, r *Reading) {
	p, h := &l.P, &l.history
	if c.taken > 0 {
		c.count += r.Admitted
	}
	c.limit = math.Max(2, r.InFlight+c.rate*(c.taken+ahead)-c.count)
	idle := 2 * math.Max(c.took, p.Proof/c.rate)
	if b, _, _ := h.last(idle); b.ended == 0 && c.taken > idle && r.InFlight > 0 {
		c.begin(l, r)
		return
	}
	b, seconds, _ := h.last(c.taken / 2)
	stay := b.inside / math.Max(b.ended, 1)
	switch early := c.taken < 2*long; {
	case b.answered < p.Few, early && b.ended < p.Enough:
		return
	case early && c.taken > idle && b.admitted-b.left > 2*math.Sqrt(b.admitted): // too many come, and may wait
		c.begin(l, r)
		c.rate = b.ended / seconds
		return
	case early && seconds < stay+2*span:
		return
	}
	l.latency.believe(stay)
	l.latency.guessed = false
	*c, l.flow.settled = recheck{}, 0
}
