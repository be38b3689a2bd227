package law

import "math"

// later is the least factor by which answers take longer than the least latency while a queue grows in front of them, and the
// greatest by which their latency may outrun the time that passes.
const later = 1.25

// piles reports whether requests pile up in a queue: significantly more came in than left, or they wait ever longer, while they
// leave at a steady rate, later than before and than the least latency, and none leaves sooner than a queue allows. Requests
// that are merely slow do leave sooner, or leave faster and faster at first, or take longer all of a sudden. If there are few,
// their order says more than their number.
func (h *history) piles(p *Params, least float64) bool {
	if h.n < 9 { // no growth of so few is significant: 3 √n > n
		return false
	}
	half := min(len(h.ring), reach, h.grown()) / 2
	if b, _, _ := h.last(reach * span); b.left < p.Enough {
		half = min(len(h.ring), 2*reach) / 2
	}
	begun := min(half, h.begun()/2)
	if queue := h.grows(p, half, least, 0) || h.even(begun) && h.grows(p, begun, least, p.Expect); !queue {
		return false
	}
	since := h.resumed(p) / 2 // a queue grows since then, too, and leaves at the rate of before: a full pool answers as many as ever
	if since < half && !h.grows(p, since, least, p.Cost*h.rate*2*float64(since)*span) {
		return false
	}
	deviation, waited, answers := h.order(p.Few)
	return answers*math.Log(waited/max(2*deviation, span/8*answers)) >= p.Proof
}

// even reports whether no more requests left in the newer half of the last two times half buckets than in the older one, beyond chance.
func (h *history) even(half int) bool {
	newer, _, _ := h.last(float64(half) * span)
	all, _, _ := h.last(float64(2*half) * span)
	return 2*newer.left-all.left <= math.Sqrt(all.left*h.uneven)
}

// grows reports whether a queue has grown in the last two times half buckets, in which at least enough requests left. It does
// not look at their order.
func (h *history) grows(p *Params, half int, least, enough float64) bool {
	var all, older bucket
	begin := len(h.ring) - 2*half
	for i := begin; i < len(h.ring); i++ {
		if i == begin+half {
			older = all
		}
		all.add(&h.ring[i], 1)
	}
	newer := all
	newer.add(&older, -1)
	chance := all.admitted + all.left
	if all.left < p.Enough { // so few that their order says more than their number
		chance = all.admitted
	}
	growth, before := newer.admitted-newer.left, older.admitted-older.left
	grows := growth >= 2*math.Sqrt(chance/2)
	stands := older.answered >= p.Few && newer.mean() > 2*older.mean() // behind a limit it has stopped growing
	if older.answered > 0 {
		least = min(least, older.mean())
	}
	switch {
	case all.left < enough:
		return false
	case older.answered > 0 && newer.mean()-older.mean() > later*float64(half)*span: // a queue adds no more than the time that passes
		return false
	case newer.mean() < later*least:
		return false
	case growth+before < 3*math.Sqrt(chance), !grows && !stands:
		return false
	case newer.left > later*older.left+math.Sqrt(all.left), !newer.queued():
		return false
	}
	return true
}

// grown returns for how many buckets at least an eighth of the requests now in flight has been there. Before, the service
// may have had less to do than it can.
func (h *history) grown() int {
	inside := h.n
	for k := len(h.ring) - 1; k >= 0; k-- {
		if inside -= h.ring[k].admitted - h.ring[k].left; inside < h.n/8 {
			return len(h.ring) - k
		}
	}
	return len(h.ring)
}

// begun returns how many buckets have closed since the first answer or failure. A service that needs a moment for its first connections
// begins with a queue, and then answers at a steady rate.
func (h *history) begun() int {
	for i := range h.ring {
		if h.ring[i].ended > 0 {
			return len(h.ring) - i
		}
	}
	return 0
}

// resumed returns how many buckets have closed since answers came again after a silence, or all buckets if there was none, or no answer
// before it. A silence is no chance if answers come as unevenly as before, neither at the mean rate nor at that of the answers around it:
// a pool that has become slow often pauses for longer than before.
func (h *history) resumed(p *Params) int {
	all, covered, _ := h.last(reach * span)
	silent, begin := 0, len(h.ring)
	for i := len(h.ring) - 1; i >= 0; i-- {
		if h.ring[i].ended == 0 {
			silent++
			continue
		}
		pause := float64(silent) * span
		if least := p.Proof * h.uneven / pause; all.ended >= least*covered && h.around(i, begin, p.Expect) >= least {
			return len(h.ring) - begin
		}
		silent, begin = 0, i
	}
	return len(h.ring)
}

// around returns the rate of the given number of answers up to bucket i, and of as many from bucket begin on, per second.
func (h *history) around(i, begin int, answers float64) float64 {
	var before, after float64
	from, to := i, begin
	for ; from >= 0 && before < answers; from-- {
		before += h.ring[from].ended
	}
	for ; to < len(h.ring) && after < answers; to++ {
		after += h.ring[to].ended
	}
	return (before + after) / (float64(i-from+to-begin) * span)
}

// order compares the latest answers, at least few, with a first-in first-out queue. It returns the deviations of their
// latencies from the latencies in such a queue, those latencies, both summed in seconds, and the number of answers.
func (h *history) order(few float64) (deviation, waited, answers float64) {
	inside := h.n
	for k := len(h.ring) - 1; k >= 0 && (answers < few || k > len(h.ring)-4); k-- {
		b := &h.ring[k]
		wait := h.back(k, inside-(b.admitted-b.left)/2)
		deviation += math.Abs(b.latency - wait*b.answered)
		waited += wait * b.answered
		answers += b.answered
		inside -= b.admitted - b.left
	}
	return deviation, waited, answers
}
