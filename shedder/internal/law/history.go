package law

import "math"

// The resolution and the reach of the history.
const (
	span  = 0.05      // seconds of a bucket
	reach = 200       // buckets: a window reaches back 10 s for enough answers
	brief = 10        // buckets that a rate covers at least: half a second
	most  = 4 * reach // buckets that are kept
)

// A bucket counts what happened in a twentieth of a second.
type bucket struct {
	admitted, refused float64
	left              float64 // admitted requests that ended, whatever their outcome
	ended             float64 // those of them that were answered or failed
	answered          float64 // the successes among them
	latency           float64 // seconds, summed over answered
	quick             float64 // those of answered that did not wait in a queue
	inside            float64 // seconds that requests spent in flight, summed
	stood             float64 // seconds in which the process stood still
}

func (b *bucket) add(o *bucket, share float64) {
	b.admitted += o.admitted * share
	b.refused += o.refused * share
	b.left += o.left * share
	b.ended += o.ended * share
	b.answered += o.answered * share
	b.latency += o.latency * share
	b.quick += o.quick * share
	b.inside += o.inside * share
	b.stood += o.stood * share
}

// mean returns the mean latency of the answers, in seconds; 0 if there is none.
func (b *bucket) mean() float64 {
	if b.answered == 0 {
		return 0
	}
	return b.latency / b.answered
}

// stay returns how long requests stay in flight by Little's law, in seconds, and at least the mean latency. The two differ
// at the start, when the short calls have ended and the long ones have not, and where failures are fast.
func (b *bucket) stay() float64 {
	if b.ended == 0 {
		return b.mean()
	}
	return max(b.mean(), b.inside/b.ended)
}

// queued reports whether all requests may have waited in a queue: hardly any answer came too soon for one.
func (b *bucket) queued() bool { return b.quick <= 0.1*b.answered }

// kept returns the share of the offered requests that ended.
func (b *bucket) kept() float64 { return b.ended / b.offered() }

func (b *bucket) offered() float64 { return b.admitted + b.refused }

// share returns the refused share of the offered requests.
func (b *bucket) share() float64 {
	if b.refused == 0 {
		return 0
	}
	return b.refused / (b.refused + b.admitted)
}

// A history keeps the last buckets, and the rates that follow from them.
type history struct {
	ring  []bucket // closed buckets, oldest first
	open  bucket
	age   float64 // seconds of open
	empty float64 // seconds since the last bucket with a request

	n float64 // requests in flight

	rate float64 // greatest rate of ended requests over a long window, per second
	pass float64 // the same over windows of one latency

	earlier float64 // the rate that another process has learnt, until a window of its own is full

	uneven float64 // variance of the answers in a bucket over their mean; 1 if they are purely random (Poisson)
}

// advance records what happened in the last dt seconds, and calls closed for each bucket that ends.
func (h *history) advance(p *Params, window float64, b *bucket, dt float64, closed func(*bucket)) {
	before := h.age
	h.age += dt
	n := math.Floor(h.age / span)
	if n < 1 {
		h.open.add(b, 1)
		return
	}
	h.age -= n * span
	rest := 0.0 // what happened after the last bucket that ends now
	if dt > 0 {
		rest = min(h.age/dt, 1)
	}
	h.open.add(b, 1-rest)
	all := h.open
	h.open = bucket{}
	h.open.add(b, rest)
	busy := n // a gap between steps is spread evenly
	if h.n == 0 {
		busy = min(n, math.Ceil((before+max(all.mean(), span))/span)) // all have ended within about their latency
		if dt > settle {
			n = busy // the rest was idle, and says nothing
		}
	}
	for i := range int(min(n, reach)) {
		var one bucket
		if float64(i) < busy {
			one.add(&all, 1/busy)
		}
		one.stood = all.stood / n
		h.close(&one, closed)
	}
	h.measure(p, window)
	if h.earlier > 0 {
		h.pass, h.rate = max(h.pass, h.earlier), max(h.rate, h.earlier)
		if float64(len(h.ring))*span >= window {
			h.earlier = 0
		}
	}
}

// close appends b. After a second in which nothing was in flight, empty buckets are left out: they say nothing about the
// service.
func (h *history) close(b *bucket, closed func(*bucket)) {
	h.empty += span
	if b.inside > 0 || b.left > 0 || b.refused > 0 {
		h.empty = 0
	}
	if h.empty > settle {
		return
	}
	if len(h.ring) >= most {
		h.ring = append(h.ring[:0], h.ring[2*reach:]...)
	}
	h.ring = append(h.ring, *b)
	closed(b)
}

// measure finds the greatest rates over windows that end within the last window seconds. A window covers at least the time that
// its requests took: a backlog that was served in parallel ends all at once, which is not a rate that the service can sustain.
//
// While requests are in flight and nothing ends, the rates do not change: stuck requests say nothing about them.
func (h *history) measure(p *Params, window float64) {
	var pass, rate, jumps, all float64
	var ended [most]float64
	n := len(h.ring)
	for i := range h.ring {
		ended[i] = h.ring[i].ended
	}
	for i := n - 1; i >= 0 && float64(n-1-i)*span < window; i-- {
		if all += ended[i]; i > 0 {
			jump := ended[i] - ended[i-1]
			jumps += jump * jump / 2
		}
		one := max(2, int(math.Ceil(min(h.ring[i].mean()/span, reach))))
		least := max(brief, one)
		var sum float64
		for j, c := i, 1; j >= 0 && c <= reach; j, c = j-1, c+1 {
			sum += ended[j]
			if c == one {
				pass = max(pass, sum/(float64(c)*span))
			}
			if c < min(least, n) || ended[j] == 0 && c > least && c < reach && j > 0 {
				continue // too short, or less than without this bucket
			}
			if sum >= p.Enough || c == reach || sum > 0 && j == 0 {
				rate = max(rate, sum/(float64(c)*span))
				break
			}
			rate = max(rate, (sum-math.Sqrt(sum))/(float64(c)*span)) // of few answers, minus what chance may add
		}
	}
	h.uneven = max(1, jumps/max(all, 1))
	if pass > 0 || h.n == 0 {
		h.pass = pass
	}
	if rate > 0 || h.n == 0 {
		h.rate = rate
	}
}

// back returns how long before the middle of bucket k the last n requests came in, in seconds.
func (h *history) back(k int, n float64) float64 {
	part, passed := 0.5, 0.0
	for ; k >= 0; k-- {
		came := h.ring[k].admitted * part
		if came >= n {
			return passed + part*span*n/max(came, 1e-9)
		}
		n -= came
		passed += part * span
		part = 1
	}
	return passed
}

// quick returns half of the age of the oldest request in flight, in seconds, if requests leave in the order in which they came.
// An answer that took less did not wait in such a queue.
func (h *history) quick() float64 { return h.back(len(h.ring)-1, h.n) / 2 }

// overdue reports whether half of the requests in flight have been there for longer than the last answers took, at least few, if
// requests leave in the order in which they came.
func (h *history) overdue(few float64) bool {
	return h.back(len(h.ring)-1, h.n/2) > later*h.latest(few)
}

// latest returns the mean latency of the last answers, at least few, in seconds.
func (h *history) latest(few float64) float64 {
	b := h.open
	for i := len(h.ring) - 1; i >= 0 && b.answered < few; i-- {
		b.add(&h.ring[i], 1)
	}
	return b.mean()
}

// last returns the sum of at least the last seconds, and their number. It reports false if the history is shorter.
func (h *history) last(seconds float64) (b bucket, covered float64, ok bool) {
	b, covered = h.open, h.age
	for i := len(h.ring) - 1; i >= 0 && covered < seconds; i-- {
		b.add(&h.ring[i], 1)
		covered += span
	}
	return b, covered, covered >= seconds
}

// ran returns the sum of the buckets in which the process ran for at least the last seconds, and for how many it ran. It
// reports false if the history is shorter.
func (h *history) ran(seconds float64) (b bucket, ran float64, ok bool) {
	b = h.open
	ran = h.age - b.stood
	for i := len(h.ring) - 1; i >= 0 && ran < seconds; i-- {
		b.add(&h.ring[i], 1)
		ran += span - h.ring[i].stood
	}
	return b, ran, ran >= seconds
}

// fewer looks for missing answers over windows in which a service of the given rate answers between from and to requests. It
// stops at the first window with missing answers or, if enough is not 0, with that many answers. Requests of the last typical
// latency are not due. If no others are in flight, none is missing.
func (h *history) fewer(p *Params, rate, typical, from, to, enough float64) (b bucket, ran float64, few bool) {
	young, _, _ := h.last(typical)
	if h.n <= young.admitted {
		return b, ran, false
	}
	b = h.open
	ran = h.age - b.stood
	asked, covered, j := h.open.offered(), h.age, len(h.ring)-1
	for i := j; i >= 0 && from <= to; i-- {
		b.add(&h.ring[i], 1)
		if ran += span - h.ring[i].stood; rate*ran < from*h.uneven {
			continue
		}
		for ; j >= 0 && covered < ran+typical; j-- {
			asked += h.ring[j].offered()
			covered += span
		}
		few = missing(p, b.ended, math.Min(rate*ran, asked-young.offered()), h.uneven)
		if few && enough == 0 || enough > 0 && b.ended >= enough {
			return b, ran, few
		}
		from *= 1.3
	}
	return b, ran, false
}

// missing reports whether n answers are so few that chance does not explain it if so many were expected (Chernoff's bound for
// a Poisson process).
func missing(p *Params, n, expected, uneven float64) bool {
	if n >= expected {
		return false
	}
	e := expected - n
	if n > 0 {
		e += n * math.Log(n/expected)
	}
	return e >= p.Proof*uneven
}

// interrupted reports whether answers stopped or began again in the last seconds: one half of them has so few of the answers of
// the other that it has lost a share of Cost, or none came for so long that it is no chance.
func (h *history) interrupted(p *Params, seconds float64) bool {
	all, covered, _ := h.last(seconds)
	silent, longest := h.age, h.age
	if h.open.ended > 0 {
		silent, longest = 0, 0
	}
	for i := len(h.ring) - 1; i >= 0 && float64(len(h.ring)-1-i)*span+h.age < seconds; i-- {
		if silent += span; h.ring[i].ended > 0 {
			silent = 0
		}
		longest = max(longest, silent)
	}
	newer, _, _ := h.last(seconds / 2)
	older := all.ended - newer.ended
	few := 1 - p.Cost
	return newer.ended <= few*older || older <= few*newer.ended || longest*all.ended >= p.Proof*(covered-longest) && longest >= all.mean()
}
