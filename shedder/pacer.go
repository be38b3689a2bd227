package shedder

import (
	"math"
	"sync/atomic"
	"time"
)

// A pacer spaces admissions: the generic cell rate algorithm (ITU-T I.371) on one word. A zero pacer lets all pass.
type pacer struct {
	interval atomic.Int64             // ns between two admissions; 0 is none
	tat      atomic.Int64             // theoretical arrival time of the next one
	slack    [numClasses]atomic.Int64 // how far ahead of its time an admission may be
}

// criticalDebt is how far requests above Normal may run ahead of the pace, at the expense of the others.
const criticalDebt = 250 * time.Millisecond

// set lets rate admissions per second pass, +Inf is all. A process that its quota stops for pause in each period has to
// catch up in between.
func (p *pacer) set(rate float64, pause time.Duration) {
	if math.IsInf(rate, 1) {
		p.interval.Store(0)
		return
	}
	interval := int64(1e9 / rate)
	slack := max(interval, int64(tick+pause))
	p.slack[sheddable].Store(slack / 2)
	p.slack[normal].Store(slack)
	p.slack[critical].Store(slack + int64(criticalDebt))
	p.interval.Store(interval)
}

// take admits one at now, in ns, and returns what it has to give back if it does not run.
func (p *pacer) take(now int64, class int) (cost int64, ok bool) {
	interval := p.interval.Load()
	if interval == 0 {
		return 0, true
	}
	slack := p.slack[class].Load()
	for {
		tat := p.tat.Load()
		next := max(tat, now)
		if next-now >= slack {
			return 0, false
		}
		if p.tat.CompareAndSwap(tat, next+interval) {
			return interval, true
		}
	}
}

// giveBack undoes a take.
func (p *pacer) giveBack(cost int64) {
	if cost != 0 {
		p.tat.Add(-cost)
	}
}
