package level

import "math"

// An Advice says which requests clients should not send.
type Advice struct {
	// Priority is the one below which clients send nothing.
	Priority int
	// Reduce is the share of the requests of Priority that they do not send either. If Reduce is 0, they send everything.
	Reduce float64
}

const (
	wanted    = 1.3    // requests that should arrive, as a multiple of those that end: with fewer, chance leaves a full service idle now and then
	catchUp   = 2      // the same while none is refused
	noneOf    = 20     // requests in a row that are admitted if none is refused
	noneFor   = 1.0    // the same in seconds
	needed    = 0.2    // share of refusals from which on clients are asked to help
	leastKept = 0.05   // share of a class that clients always send
	useful    = 0.03   // share below which a class is held back as a whole, if a higher one is there
	rateOver  = 0.4    // seconds over which rates are averaged
	answered  = 0.2    // seconds until advice changes what arrives, about
	harder    = 0.1    // seconds in which the advised share may fall by a factor of e
	softer    = 0.5    // seconds in which it may grow by that
	remember  = 5      // seconds over which the demand of classes that are held back is forgotten
	least     = 1      // requests per second below which there is no overload
	thousand  = 1000.0 // steps of Advice.Reduce, which has three decimals on the wire
)

// An adviser finds the advice with which a little more arrives than the service can answer. It sees the effect of its
// advice: clients that do not follow it are no part of the answer. The zero adviser advises nothing.
type adviser struct {
	active bool
	class  int     // clients hold back all lower classes
	keep   float64 // share of the class that clients send
	soon   float64 // keep, as clients have heard of it
	kept   float64 // soon, averaged as the rates are

	rates                    [Classes]float64 // requests that arrive, per second
	demand                   [Classes]float64 // requests that would arrive without advice
	arrived, refused, passed float64          // per second
	able                     float64          // the greatest passed of late
	inARow, calm             float64          // requests and seconds since the last refusal
}

// step takes in a tick, with the requests that have arrived by class, in any unit.
func (a *adviser) step(t *Tick, fresh *[Classes]float64) {
	if !(t.Dt > 0) {
		return
	}
	a.observe(t, fresh)
	if a.arrived < least {
		*a = adviser{}
		return
	}
	a.able = math.Max(a.passed, a.able*math.Exp(-t.Dt/remember))
	budget := wanted * a.passed
	if a.inARow >= noneOf || a.calm >= noneFor {
		budget = math.Max(wanted*a.able, catchUp*a.arrived)
	}
	if !a.active {
		if a.refused < needed*a.arrived {
			return
		}
		a.begin()
	}
	a.steer(t.Dt, budget)
}

// observe averages the rates and estimates the demand.
func (a *adviser) observe(t *Tick, fresh *[Classes]float64) {
	all := 0.0
	for _, n := range fresh {
		all += n
	}
	arrived := t.Admitted + t.Refused
	a.inARow, a.calm = a.inARow+arrived, a.calm+t.Dt
	if t.Refused > 0 {
		a.inARow, a.calm = 0, 0
	}
	weight := -math.Expm1(-t.Dt / rateOver)
	average := func(of *float64, n float64) { *of += (n/t.Dt - *of) * weight }
	average(&a.arrived, arrived)
	average(&a.refused, t.Refused)
	average(&a.passed, t.Left)
	a.soon += (a.keep - a.soon) * -math.Expm1(-t.Dt/answered)
	a.kept += (a.soon - a.kept) * weight
	forget := math.Exp(-t.Dt / remember)
	for c := range a.rates {
		average(&a.rates[c], fresh[c]*arrived/math.Max(all, 1e-9))
		switch rate := a.rates[c]; {
		case !a.active || c > a.class:
			a.demand[c] = rate
		case c == a.class:
			a.demand[c] = rate / math.Max(a.kept, leastKept/2)
		default:
			a.demand[c] = math.Max(rate, a.demand[c]*forget)
		}
		if a.demand[c] < gone*a.arrived {
			a.demand[c] = 0
		}
	}
}

// gone is the share of all requests below which a class counts as gone.
const gone = 1e-3

// begin starts to advise, from the lowest class on.
func (a *adviser) begin() {
	a.active = true
	a.enter(max(a.next(-1), 0), 1)
}

// enter makes class the one of which a share is sent.
func (a *adviser) enter(class int, keep float64) {
	a.class, a.keep, a.soon, a.kept = class, keep, keep, keep
}

// steer moves the advice towards the one with which budget requests per second arrive.
func (a *adviser) steer(dt, budget float64) {
	class, keep := a.goal(budget)
	switch {
	case class > a.class:
		keep = 0
	case class < a.class:
		keep = 1
	}
	keep = min(max(keep, a.keep*math.Exp(-dt/harder)), a.keep*math.Exp(dt/softer), 1)
	up := a.next(a.class)
	switch {
	case keep <= leastKept && class > a.class && up >= 0:
		a.enter(up, 1)
		return
	case keep < 1 && a.demand[a.class] > 0 || class >= a.class:
	case class < 0 && a.below() < 0:
		a.active = false
		return
	default:
		a.enter(a.below(), leastKept)
		return
	}
	a.keep = max(keep, leastKept)
}

// goal returns the class of which only a share fits into budget, and the share. The class is -1 if all fit.
func (a *adviser) goal(budget float64) (class int, keep float64) {
	higher := 0.0
	above := -1
	for c := Classes - 1; c >= 0; c-- {
		d := a.demand[c]
		if d == 0 {
			continue
		}
		if higher+d <= budget {
			higher += d
			above = c
			continue
		}
		if keep = (budget - higher) / d; keep < useful && above >= 0 {
			return above, 1
		}
		return c, keep
	}
	return -1, 1
}

// next returns the lowest class above class with any demand, or -1.
func (a *adviser) next(class int) int {
	for c := class + 1; c < Classes; c++ {
		if a.demand[c] > 0 {
			return c
		}
	}
	return -1
}

// below returns the highest class below the present one with any demand, or -1.
func (a *adviser) below() int {
	for c := a.class - 1; c >= 0; c-- {
		if a.demand[c] > 0 {
			return c
		}
	}
	return -1
}

// advice returns the present advice.
func (a *adviser) advice() Advice {
	if !a.active {
		return Advice{}
	}
	reduce := math.Round((1-a.keep)*thousand) / thousand
	return Advice{Priority: Priority(a.class), Reduce: min(max(reduce, 1/thousand), 1-leastKept)}
}
