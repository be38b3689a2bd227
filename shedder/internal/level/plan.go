package level

import "math"

// A Tick is what a plan is made from: counts and readings since the last one.
type Tick struct {
	Dt                float64 // seconds since the last tick
	Admitted, Refused float64 // requests since the last tick
	Left              float64 // admitted requests that ended since
	InFlight          float64 // now
	Limit             float64 // greatest number in flight, by the law; +Inf is none
	Most              float64 // greatest limit by the options, +Inf is none; for all but higher classes
	Drop              float64 // share of requests that the law refuses whatever is in flight
	Rotation          uint64  // number of the present order of light keys
	Calm              bool    // requests take as long as they do in a calm service
	Seed              uint64  // unknown to strangers; used once
}

// A rank is the place of a request in relation to the mark.
type rank int

const (
	above  rank = iota // a higher class: it fits, together with all above it
	within             // in the class at the mark, with a key or a route that sends less than its share
	at                 // in the class at the mark
	behind             // in that class, and its key or its route has had its share
	next               // in the next lower class, while the class at the mark leaves room
	below              // all the others
	ranks
)

// A plan says which requests to refuse, together with the plans of the routes.
type plan struct {
	calm    bool // none is refused, and requests take as long as ever
	mark    int  // class of the mark
	chooses bool // some requests of that class are behind
	byRoute bool // it is divided among its routes

	next   int            // the next lower class, or mark if there is nothing left for it
	limits [ranks]float64 // greatest number in flight that a request of each rank may join
	drops  bool           // some requests are dropped
	dropAt int            // class of the quantile Drop: requests of lower classes are dropped
}

// A planner makes plans. The zero planner has seen nothing.
type planner struct {
	offered, refused, left float64 // requests over about the last span seconds
	inFlight               float64 // averaged
	span                   float64
	floor                  float64 // requests per window up to which a key is light
	rates                  rates   // scratch
	samples                [mostRoutes + 1]int
}

const (
	rateSpan  = 1.0  // seconds over which the share of refusals is measured, if requests are frequent
	mostSpan  = 10.0 // the same if they are rare
	enough    = 64.0 // requests in a span that make it long enough
	levelSpan = 2.0  // spans over which levels are counted
	few       = 8.0  // ended requests in a span that say how many there is room for
	stay      = 0.5  // seconds over which the number in flight is averaged

	slack    = 0.75 // the same, below which the needed share of refusals is overestimated
	fits     = 0.95 // share of the admitted requests up to which a class and those above it fit
	uses     = 1.05 // the same, from which on they leave nothing to lower classes
	chosen   = 1.1  // requests chosen by their keys, as a multiple of those that there is room for
	push     = 1.25 // the same of a route that is cut, in busy time: the dearest would fill gaps
	scraps   = 0.1  // share of the limit that requests behind may fill then
	reserve  = 0.75 // share of the limit that the class of the mark may fill at least
	gaps     = 0.5  // share of the limit that requests behind may fill
	yield    = 0.4  // part of the excess of the higher classes that the class of the mark leaves free below the limit
	guard    = 0.25 // share of the limit that classes below the mark may fill
	tail     = 1e-3 // probability with which a class that fits meets its limit
	mostTail = 100  // greatest room beyond the limit for that
)

// window returns the seconds over which requests are counted by class and key.
func (p *planner) window() float64 { return levelSpan * max(p.span, rateSpan) }

// observe takes in t and returns the share of the requests that there is room for, by number or by busy time.
func (p *planner) observe(h *Histogram, f *routes, t *Tick, weight float64) float64 {
	p.span = max(p.span, rateSpan)
	keep, keepWork := math.Exp(-t.Dt/p.span), math.Exp(-t.Dt/p.window())
	h.fold(keepWork, weight)
	if p.refused == 0 {
		keep = 0 // the requests before the first refusal say nothing about the overload
	}
	if f.shared {
		f.step(t.Dt, keep, keepWork, weight, h.all, p.refused == 0 && t.Refused == 0)
	}
	p.offered = p.offered*keep + t.Admitted + t.Refused
	p.refused = p.refused*keep + t.Refused
	p.left = p.left*keep + t.Left
	p.span = min(max(enough/max(p.offered/p.span, 1e-9), rateSpan), mostSpan)
	if f.shared {
		f.mixed(t.Dt, t.Left, p.left, p.refused)
	}
	p.inFlight = t.InFlight + (p.inFlight-t.InFlight)*math.Exp(-t.Dt/stay)
	if p.refused < 0.5 { // of a request
		p.refused = 0
		return 1
	}
	passed := p.left // at first, requests are admitted that fill the limit, or none while a lower one is reached
	if passed < few {
		passed = max(passed, p.offered-p.refused)
	} else if f.shared && f.offered > 0 {
		return min(f.ended/f.offered, 1)
	}
	return min(passed/p.offered, 1)
}

// plan takes in t and returns what to do until the next tick. The levels in h count weight requests each.
func (p *planner) plan(h *Histogram, f *routes, k *sketch, t *Tick, weight float64) plan {
	admitted := p.observe(h, f, t, weight)
	p.floor = steady * weight
	if f.shared {
		h = &f.total
	}
	f.level, f.decide = math.Inf(1), false
	for _, r := range f.all {
		r.plan = routePlan{keys: all(), stays: all()}
	}
	var out plan
	p.split(&out, h, f, k, t.Drop)
	limit := t.Limit
	if admitted == 1 {
		out.calm = t.Calm
		out.mark = h.lowest(0.01)
		out.next = out.mark
		out.limits = [ranks]float64{above: limit, within: limit, at: limit, behind: limit, next: limit, below: limit}
		if h.all > 0 {
			out.limits[above] = limit + max(1, limit/2)
		}
		return out
	}
	room := admitted * (1 + max(0, slack-p.inFlight/limit))
	var higher, with float64 // shares of the classes above the mark, without and with its own
	out.mark = h.lowest(0)
	for c := Classes - 1; c >= 0; c-- {
		if with = higher + h.share(c); with > fits*room {
			out.mark = c
			break
		}
		if c > out.mark {
			higher = with
		}
	}
	share := h.share(out.mark)
	fit := higher // share of the requests that fit
	if within := share * p.choose(&out, h, f, k, (admitted-higher)/max(share, 1e-9)); within > 0 && higher+within <= fits*room {
		fit = higher + within
	} else {
		for _, r := range f.all {
			r.plan.fits = 0
		}
	}
	out.limits[above] = limit + max(1, limit/2, excess(higher/max(admitted, 1e-9)))
	extra, fill := min(2*limit, excess(fit/max(admitted, 1e-9))), gaps
	if out.byRoute { // many cheap requests may have to wait for a dear one, and a dear one fills more than a gap
		extra, fill = 2*limit, scraps
	}
	out.limits[within] = max(limit, min(t.Most, limit+max(1, extra)))
	out.limits[at] = max(limit-yield*excess(higher/max(admitted, 1e-9)), reserve*limit)
	out.limits[behind] = fill * limit
	out.limits[below] = guard * limit
	out.limits[next] = out.limits[below]
	out.next = out.mark
	if lower := h.below(out.mark); lower >= 0 && with < uses*admitted {
		out.next = lower
		out.limits[next] = min(max(limit/2, limit*(1-(1-admitted)/max(1-with, 1e-9))), out.limits[at])
	}
	return out
}

// choose divides the class at the mark among its routes, and each route among its keys, if a share of the class passes.
// It returns the part of the class whose routes or keys are cut by nothing.
func (p *planner) choose(out *plan, h *Histogram, f *routes, k *sketch, pass float64) (within float64) {
	out.byRoute = f.divide(out.mark)
	even, more := pass, chosen*pass
	level, widest := math.Inf(1), math.Inf(1)
	if out.byRoute {
		level, widest = f.fill(min(chosen*pass, 1-1e-9)), f.fill(push*pass)
		if even := f.fill(pass); !math.IsInf(even, 1) {
			f.level = even * f.total.class[out.mark] / p.window() / 1e9
		}
	}
	p.sampled(f, k, out.mark)
	for _, r := range f.all {
		own, need := &r.plan, r.plan.need
		if need == 0 {
			continue
		}
		if out.byRoute {
			if need <= level {
				own.fits = math.Inf(1)
				within += need
				continue
			}
			even, more = level/chosen/need, min(widest/need, 1)
			own.keys, own.over = alike(more), even < pass
		}
		if keyed := f.keyed(h, r, out.mark); p.byKeys(r, k, keyed) {
			k.read(out.mark, r.number, &p.rates)
			if c := p.rates.cut(more, p.floor); c.decides {
				own.keys = c
			}
			if c := p.rates.cut(even, p.floor); c.within > 0 {
				own.fits = c.level
				within += c.within * keyed * need
			}
		}
		out.chooses = out.chooses || own.keys != all()
	}
	f.decide = out.byRoute && out.chooses
	out.chooses = out.chooses || !math.IsInf(level, 1)
	return within
}

// sampled counts the remembered requests of the routes of a class for byKeys.
func (p *planner) sampled(f *routes, k *sketch, class int) {
	p.samples[0] = fewKeyed // enough to ask the sketch
	if f.shared && k != nil {
		k.samples(class, &p.samples)
	}
}

// byKeys reports whether the keys of a route may decide, of whose requests a part is keyed.
func (p *planner) byKeys(r *route, k *sketch, keyed float64) bool {
	return k != nil && keyed >= leastBy && p.samples[r.number] >= fewKeyed
}

// excess returns the number of requests that a queue of the given load, 0 to 1, exceeds with probability tail (M/M/1).
func excess(load float64) float64 {
	if load <= 0 {
		return 0
	}
	return min(math.Log(tail)/math.Log(min(load, 1-1e-6)), mostTail)
}

// split finds the class in which the quantile drop lies.
func (p *planner) split(o *plan, h *Histogram, f *routes, k *sketch, drop float64) {
	if drop <= 0 {
		return
	}
	o.drops, o.dropAt = true, h.lowest(0)
	lower := 0.0
	for c := range Classes {
		share := h.share(c)
		if lower+share > drop {
			o.dropAt = c
			p.keep(h, f, k, c, 1-(drop-lower)/share)
			break
		}
		lower += share
	}
}

// keep lets a share of the requests of a class stay.
func (p *planner) keep(h *Histogram, f *routes, k *sketch, class int, share float64) {
	pass, byRoute := share, f.divide(class)
	level := f.fill(share)
	p.sampled(f, k, class)
	for _, r := range f.all {
		if byRoute {
			pass = min(level/max(r.plan.need, 1e-12), 1)
		}
		r.plan.stays = alike(pass)
		if p.byKeys(r, k, f.keyed(h, r, class)) {
			k.read(class, r.number, &p.rates)
			r.plan.stays = p.rates.cut(pass, p.floor)
		}
	}
}

// lowest returns the lowest class with more than the given share of the requests.
func (h *Histogram) lowest(share float64) int {
	for c := range Classes {
		if h.class[c] > 0 && h.share(c) >= share {
			return c
		}
	}
	return 0
}

// below returns the next lower class that has requests, or -1.
func (h *Histogram) below(class int) int {
	for c := class - 1; c >= 0; c-- {
		if h.class[c] > 0 {
			return c
		}
	}
	return -1
}
