package law

import "math"

// A flow bounds the requests in flight at any CPU by Little's law, and finds out whether a service in which requests pile up is
// full or slow.
type flow struct {
	limit  float64 // +Inf while nothing is known
	stay   float64 // seconds that a request may stay inside; limit follows from it
	wide   float64 // from 1 towards 0 while more is refused than chance explains
	before latency // the typical latency before it rose on proof, until a sample confirms that no request waits
	held   float64 // best rate of answers while much is refused: the limit must not spiral down with it
	first  float64 // rate of answers when that began, less what chance may add

	implied float64 // latency that missing answers imply, fading
	missing bool
	waiting float64 // seconds of that
	late    float64 // seconds since answers came again, while a longer latency is not confirmed
	settled float64 // seconds since more were in flight than the limit allows
	back    float64 // seconds since no success came where some were due
	down    float64 // seconds since such a silence was a stop
	piled   int     // buckets in a row that closed on a queue that grows
	full    bool    // a queue has been seen to grow, and requests have been refused since
	steady  float64 // windows in which it answered as ever while much was refused, 1 at most
	suffice float64 // requests in flight then, on average, at least
	sated   float64 // seconds of fewer answers for which that means that it is full

	again recheck
}

// fading is the part per second by which what was learnt in an incident fades.
const fading = 0.01

// fade lets a closed bucket pass. What missing answers implied fades. It is forgotten, and so is a latency that rose on proof, if answers
// turn out to wait in a queue, such as one that a stop has left. The first answers after a silence say nothing: a stop has held them up, or
// they are those of the short calls. The latencies of neighbours are alike, so twice the usual proof is needed.
func (f *flow) fade(l *Law) {
	f.implied *= 1 - fading*span
	usual := l.latency.typical
	if f.before.typical > 0 {
		usual = f.before.typical
	}
	doubtful := usual > 0 && (f.before.typical > 0 || f.implied > 2*usual)
	if f.late += span; f.missing || !doubtful {
		f.late = 0
		return
	}
	if l.history.follows(f.late-f.implied) > 2*l.P.Proof {
		f.forget(l)
	}
}

// forget restores the latency from before proofs that no sample has confirmed.
func (f *flow) forget(l *Law) {
	if f.before.typical > 0 {
		l.latency = f.before
		l.latency.restart()
	}
	f.implied, f.missing, f.before = 0, false, latency{}
}

// sure is how many buckets in a row must show a growing queue; a single one may show it by chance.
const sure = 2

// pile records whether a queue was growing when a bucket closed.
func (f *flow) pile(grows bool) {
	if f.piled++; !grows {
		f.piled = 0
	}
}

// slowed reports whether a calm sample confirms what missing answers implied: it takes longer than before, and answers keep
// pace with requests.
func (f *flow) slowed(l *latency, stay float64, pace bool) bool {
	return !f.missing && pace && f.implied > 2*l.typical && l.typical > 0 && stay > f.implied/2
}

// step computes the limit for the reading r.
func (f *flow) step(l *Law, r *Reading) {
	p := &l.P
	recent, _, share := f.excess(l, 4*p.Enough) // fewer may be a moment of chance, which is no reason to narrow the limit
	heavy := share >= p.Heavy
	f.settled += r.Dt
	f.back += r.Dt
	f.down += r.Dt
	over := r.InFlight > f.limit+math.Sqrt(f.limit) || f.again.limit > 0 && r.InFlight > f.limit+1
	if over {
		f.settled = 0
	}
	latest, covered, refused := f.excess(l, p.Enough)
	f.sate(l, r, &latest, covered, refused >= p.Heavy)
	f.miss(l, r, heavy)
	switch grows := f.piled >= sure; {
	case grows:
		f.full = true
		if m := &l.latency; m.typical == 0 || m.guessed && m.least > 0 && m.typical > m.least { // else the wide limit holds, and refusals tighten it
			f.guess(l)
		}
		f.takeBack(l)
	case !l.refusing():
		f.full = false
	}
	switch again := f.again.step(l, r, heavy); {
	case again:
	case heavy && l.little:
		f.tighten(l, r.Dt, share, over)
	default:
		if recent.share() < p.Heavy { // a pause in what is offered does not end it
			f.held, f.first = 0, 0
		}
		if !l.little {
			share = 0
		}
		f.balance(l, r.Dt, share)
	}
	f.bound(l, r)
}

// excess looks back over about the given number of answers, and returns what share of the offered requests was refused in excess of what
// the service can answer.
func (f *flow) excess(l *Law, answers float64) (recent bucket, covered, share float64) {
	h := &l.history
	reach := math.Max(math.Max(0.3, 2*f.stay), math.Min(5, answers/math.Max(h.rate, 1e-9)))
	recent, covered, _ = h.last(reach)
	if recent.offered() < (1-l.P.Heavy)*l.Rate()*covered {
		return recent, covered, 0 // less is offered than the service has just answered: the limit is tight
	}
	return recent, covered, recent.share()
}

// sate looks for a window in which as many answers came as ever, but for what chance has added to the best rate, while much was refused, no
// more were in flight than the limit allows, and the CPU had time to spare. Just above the capacity, much is refused at some moments only,
// and the others count against it no faster. It counts for at most ten seconds of fewer answers: another dependency may have become slow,
// too. While a latency is in doubt, answers prove nothing.
func (f *flow) sate(l *Law, r *Reading, recent *bucket, covered float64, heavy bool) {
	p, usual := &l.P, math.Max(l.history.rate, f.held)*covered
	part := r.Dt / math.Max(settle, covered)
	switch {
	case f.missing, f.before.typical > 0, f.implied > 2*l.latency.typical, l.latency.guessed:
	case recent.offered() < p.Cost*usual: // a pause
		f.steady, f.sated = 0, 0
	case recent.ended < p.Cost*usual:
		f.steady, f.sated = 0, math.Max(f.sated-r.Dt, 0)
	case !heavy:
		if f.steady -= part; f.steady <= 0 {
			f.steady, f.sated = 0, 0
		}
	case l.little && !l.cpu.busy && f.settled >= covered && recent.ended >= mostly*usual:
		if f.steady = math.Min(f.steady+part, 1); f.steady == 1 {
			if n := recent.inside / covered; f.sated == 0 || n < f.suffice {
				f.suffice = n
			}
			f.sated = 2 * long
		}
	}
}

// isSated reports whether the service is full with n requests in flight: about as many have sufficed for as many answers as ever. If a full
// one gives fewer, it is slower and still full. With far fewer in flight, a tighter limit may have cost answers.
func (f *flow) isSated(n float64) bool { return f.sated > 0 && n >= mostly*f.suffice }

// guess bounds the requests in flight as tightly as a guess of the latency allows, until it can be measured.
func (f *flow) guess(l *Law) {
	l.latency.guess()
	f.wide, f.again = 0, recheck{due: true}
}

// raise accepts a longer latency on proof.
func (f *flow) raise(l *latency, stay float64) {
	if f.before.typical == 0 && !l.guessed {
		f.before = *l
	}
	l.believe(stay)
	l.guessed = false
}

// takeBack restores the latency from before proofs that no sample has confirmed, since a queue grows in spite of them: requests
// are refused, or take still longer.
func (f *flow) takeBack(l *Law) {
	recent, _, _ := l.history.last(settle)
	if f.before.typical > 0 && (l.refusing() || recent.mean() >= later*l.latency.typical) {
		f.forget(l)
	}
}

// tighten narrows the limit, unless that costs answers: then requests are slow, not queued.
func (f *flow) tighten(l *Law, dt, share float64, over bool) {
	p, h := &l.P, &l.history
	window := math.Max(1, math.Max(2*f.stay, p.Enough/math.Max(l.Rate(), 1e-3)))
	if b, seconds, ok := h.last(window); ok {
		if f.held == 0 && !l.latency.guessed { // answers may be missing already
			before, covered, _ := h.last(2 * long)
			f.held, f.first = before.ended/covered, (b.ended-math.Sqrt(b.ended))/seconds
		}
		f.held = math.Max(f.held*(1-fading*dt), b.ended/seconds)
		if b.ended < p.Cost*f.held*seconds && !f.stopped(l) && !f.isSated(h.n) {
			f.lost(l, window)
			return
		}
	}
	switch {
	case over:
	case share < 2*p.Heavy:
		f.balance(l, dt, share)
	case f.stay > 0 && l.refusing():
		squeeze := math.Pow(p.Squeeze, dt/math.Max(f.stay, 0.05))
		f.wide *= squeeze
		f.implied *= squeeze
	}
}

// balance moves the limit between tight and wide by an integral on the refused share, beside what chance explains at the limit of
// now. Near its capacity a service has moments of refusals, so only their mean counts.
func (f *flow) balance(l *Law, dt, share float64) {
	target := l.P.Heavy/5 + f.chance(l)
	f.wide = math.Max(0, math.Min(f.wide+dt/(2*long)*(1-share/target), 1))
}

// chance returns the share that the limit refuses by chance if exactly the capacity is offered: by Erlang's loss formula for as many
// slots as requests are served at once, with a queue for what the limit allows beyond them. Uneven answers need a longer queue
// (Kingman's formula).
func (f *flow) chance(l *Law) float64 {
	slots := math.Max(l.history.rate, f.held) * l.latency.typical
	queue := math.Max(0, f.limit-slots) / ((1 + l.history.uneven) / 2)
	return 1 / (math.Sqrt(math.Pi*slots/2) + 2.0/3 + queue)
}

// warming is how long a service that had stopped may be slow when it answers again, in seconds: it connects anew, and its caches are
// cold.
const warming = 2.0

// stopped reports whether fewer answers than before say nothing about the latency: none comes at all, or they have just come back.
// A silence is no chance, even if the service is as slow as far. It is a stop if requests fail in it, or half of those in flight have
// been there for longer than the last answers took. Any other is a pause between two batches of equal calls. A service that is still
// cold has such pauses, too, so they count for some seconds after a stop.
func (f *flow) stopped(l *Law) bool {
	h := &l.history
	window := math.Max(f.stay, l.P.Proof*f.far(l)/math.Max(h.n, 1))
	now, seconds, _ := h.last(window)
	if now.answered == 0 && f.held*seconds >= l.P.Proof {
		f.back = 0
		if now.ended > 0 || h.overdue(l.P.Few) {
			f.down = 0
		}
	}
	return f.warms()
}

// warms reports whether the service has just come back.
func (f *flow) warms() bool { return f.back < warming && f.down < long }

// lost looks at the answers that a limit has cost, over ever longer windows.
func (f *flow) lost(l *Law, window float64) {
	p := &l.P
	for n := p.Enough; n <= 4*p.Expect; n *= 1.3 {
		if f.cost(l, math.Max(window, n*l.history.uneven/f.held)) {
			return
		}
	}
}

// cost accepts the latency under a limit that has cost answers for the given seconds, unless that may be chance. While too few
// requests are in flight to keep a service busy, none waits in a queue, so Little's law gives the true latency. It takes a
// window of about that latency: over a shorter one, requests that have just been let in look like a longer latency. Nor may the window
// contain a stop.
func (f *flow) cost(l *Law, window float64) bool {
	p, h := &l.P, &l.history
	b, seconds, ok := h.last(window)
	for ok && seconds < mostly*b.stay() && seconds < 2*long {
		b, seconds, ok = h.last(math.Min(mostly*b.stay(), 2*long))
	}
	expected := f.held * seconds
	switch {
	case !ok, l.cpu.busy, b.ended >= p.Cost*expected, !missing(p, b.ended, math.Max(noisy*f.held, f.first)*seconds, h.uneven):
		return false
	case math.Min(f.settled, f.down) < seconds, h.interrupted(p, seconds):
		return false
	}
	f.full, f.wide, f.late = false, 1, 0
	f.raise(&l.latency, b.stay())
	f.again.due = false
	return true
}

// noisy is the least share of the held rate that the true rate may be: the held rate is the highest of several samples.
const noisy = 0.7

// bound computes the limit.
func (f *flow) bound(l *Law, r *Reading) {
	p, h := &l.P, &l.history
	f.limit = math.Inf(1)
	typical := l.latency.known()
	rate := math.Max(h.rate, f.held) * r.Mix
	switch {
	case rate == 0 && l.o.SLO > 0 && h.pass > 0:
		rate, typical = h.pass*r.Mix, l.o.SLO
	case rate == 0:
		return
	case l.latency.typical > 0:
	case l.o.SLO > 0:
		typical = l.o.SLO // the objective bounds what is not known yet
	default:
		return
	}
	cpus := 1.0
	if r.CPUs > 0 {
		cpus = math.Min(r.CPUs, 1)
	}
	rate = math.Max(rate, cpus/typical) // a service answers at least one request after another
	takes := typical / l.latency.ran(l.quota.running())
	t := p.Tight*takes + f.wide*math.Max((p.Near-p.Tight)*takes, l.quota.pause) + (p.Slack+l.credit.time)*(p.Part+(1-p.Part)*f.wide)
	t = math.Max(t, 1.2*f.implied)
	if f.missing {
		t = math.Max(t, f.far(l))
	}
	if l.o.SLO > 0 {
		t = math.Min(t, objective*l.o.SLO)
	}
	f.stay = t
	f.limit = f.room(rate * t)
	if f.again.limit > 0 {
		f.limit = f.again.limit
	}
	if l.o.SLO > 0 {
		f.limit = math.Min(f.limit, math.Max(2, rate*objectiveMost*l.o.SLO))
	}
}

// room returns the limit for x requests in the mean, with what chance adds.
func (f *flow) room(x float64) float64 { return math.Max(2, x+(1+f.wide)*math.Sqrt(x)) }

// The shares of the SLO that requests may spend in flight, on average and at most, so that the 99th percentile stays within it.
const (
	objective     = 0.7
	objectiveMost = 0.85
)

// far returns the longest stay that missing answers may imply. A service that takes longer is down.
func (f *flow) far(l *Law) float64 { return l.P.Far*l.latency.typical + 2*l.P.Slack }

// miss looks for missing answers. A dependency that has become slow gives fewer answers for as long as one answer takes; a full
// pool gives as many as ever, at any limit, and one that has become slower gives them in the order of a queue. Where fewer
// requests arrive than before, fewer answers are expected. While requests are refused and nothing at all is answered, there is
// no verdict.
func (f *flow) miss(l *Law, r *Reading, heavy bool) {
	p, h := &l.P, &l.history
	was := f.missing
	f.missing = false
	rate := math.Max(h.rate, f.held)
	if rate == 0 || l.latency.typical == 0 || f.again.limit > 0 || f.warms() || f.isSated(h.n) || l.cpu.busy {
		return
	}
	if was {
		f.waiting += r.Dt
	} else {
		f.waiting = 0
	}
	var b bucket
	var seconds float64
	var few bool
	switch {
	case was:
		b, seconds, few = h.ran(math.Max(span, p.Expect*h.uneven/rate))
		few = few && b.ended < math.Min(keeping*rate*seconds, b.offered())
	case heavy, f.full:
		all, covered, _ := h.last(2 * long) // a mean is not the best of several
		b, seconds, few = h.fewer(p, math.Min(rate, all.ended/covered), l.latency.typical, p.Expect, p.Expect, p.Few)
		if !few { // one request after another gives 1 / typical
			b, seconds, few = h.fewer(p, 1/l.latency.typical, l.latency.typical, p.Expect, 16*p.Expect, p.Few)
		}
		few = few && f.settled >= seconds && !h.interrupted(p, seconds)
	default:
		b, seconds, few = h.fewer(p, mostly*rate, l.latency.typical, p.Few, p.Expect, 0)
	}
	if few && f.piled >= sure { // they wait, so none is late
		f.implied = 0
		return
	}
	if !few || f.waiting > math.Max(f.far(l), b.stay()) { // once late answers come, the service is slow, not down
		if was {
			f.implied = math.Max(f.implied, b.stay())
		}
		return
	}
	f.missing, f.full = true, false
	stay := r.InFlight * seconds / math.Max(b.ended, 1e-9)
	f.implied = math.Min(stay, math.Max(f.far(l), math.Min(f.implied, h.latest(p.Few)))) // what late answers have shown stays
}
