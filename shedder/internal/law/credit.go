package law

import "math"

// A credit is the time for which the process has just stood still. What waited meanwhile is given that time, and it fades.
type credit struct {
	time      float64 // seconds
	confirmed float64 // the part that a sample of the CPU has confirmed
	full      bool    // the CPU was full all through its last sample
}

// standstill is the least time in seconds without a step, while requests are in flight, that counts as a standstill.
const standstill = 0.06

// step records the reading r, in which the process stood still for the given seconds. Of few requests, a gap may be chance or a
// standstill. The credit does no harm then. While the CPU is full, it would: steps are late because they wait for a processor, and a
// limit that rises for that makes them wait for longer. So a credit lasts only if the next sample shows that the CPU was not full.
func (c *credit) step(p *Params, r *Reading, stood float64) {
	fades := math.Exp(-r.Dt)
	c.time *= fades
	c.confirmed *= fades
	if gap := r.InFlight > 0 && r.Dt-r.Pause >= standstill; (gap || stood > 0) && !c.full {
		c.time = math.Max(c.time, math.Min(r.Dt, 1))
	}
	c.full = r.CPUKnown && r.CPU >= p.Full
	switch {
	case !r.CPUFresh:
	case c.full:
		c.time = c.confirmed
	default:
		c.confirmed = c.time
	}
}

// stood returns for how many seconds of r the process stood still: no request came, which is not chance (one in a thousand),
// and some of those in flight ended no sooner than after that, if at all.
func (l *Law) stood(r *Reading) float64 {
	still := r.Dt - r.Pause
	if still < standstill || r.InFlight == 0 && r.Latency < r.Answered*still/4 || r.InFlight+r.Answered == 0 {
		return 0
	}
	if recent, seconds, _ := l.history.last(settle); recent.offered()*still < 7*math.Max(seconds, span) {
		return 0
	}
	return still
}
