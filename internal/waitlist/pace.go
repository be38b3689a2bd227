package waitlist

import "math"

// A pace measures how many places become free per second while requests wait.
type pace struct {
	served, time float64 // of late, in places and ns
	last         int64
}

const (
	paceSpan = 5e8 // ns of waiting over which the pace is measured
	paceMany = 16  // places that became free over which it is measured, if that takes longer
	paceLife = 1e9 // ns without waiting requests after which it is unknown
	paceFrom = 3   // places that became free, from which on it is known
)

// begin begins a time in which requests wait.
func (p *pace) begin(now int64) {
	if now-p.last > paceLife {
		*p = pace{}
	}
	p.last = now
}

func (p *pace) add(now, n int64) {
	dt := float64(max(now-p.last, 0))
	keep := max(math.Exp(-dt/paceSpan), 1-float64(n)/paceMany)
	p.served, p.time = p.served*keep+float64(n), p.time*keep+dt
	p.last = max(p.last, now)
}

// wait returns the ns until n places are free, or 0 if that is unknown.
func (p *pace) wait(n, now int64, waiting bool) int64 {
	since := max(now-p.last, 0)
	if p.served < paceFrom || !waiting && since > paceLife {
		return 0
	}
	time := p.time
	if waiting {
		time += float64(since)
	}
	return int64(min(float64(n)*time/p.served, math.MaxInt64/2))
}
