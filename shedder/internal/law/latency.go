package law

import "math"

// A latency learns how long a request typically stays in flight while the service is calm.
type latency struct {
	typical float64 // seconds; 0 until it is known
	least   float64 // least mean of a few answers: stands in for typical until that is known
	guessed bool    // typical is a guess: all that it was taken from may have waited in a queue
	left    float64 // share of the time that a CPU quota leaves now
	running float64 // the same when typical was measured; 0 if that is not known
	samples int
	queued  bool // all requests of the last sample may have waited
	more    bool // more of them came in than left
	shared  bool // the CPU was full for half of the last sample
	grew    bool // significantly more did, or some were refused

	some   bucket  // too few answers to say anything yet
	sample bucket  // the sample that is being taken
	late   bucket  // its part after the first half second
	taken  float64 // seconds of it
	full   float64 // seconds of it in which the CPU was in use up to the threshold, whatever goroutines waited
	calm   float64 // seconds since the last refusal
}

// believed is how many first samples are taken as they are, unless a queue may have made one longer. Later ones may raise the typical
// latency only by Drift.
const believed = 3

// keeping is the share of the offered requests that has to end for answers to keep pace.
const keeping = 0.8

// settle is how long no request has been refused when a sample begins, and how long a sample is at least, in seconds.
const settle = 1.0

// long is how long a sample or a window waits for enough requests, in seconds.
const long = reach * span / 2

// glance keeps the least mean latency of a few answers.
func (l *latency) glance(p *Params, answered, latency float64) {
	l.some.answered += answered
	l.some.latency += latency
	if l.some.answered < p.Few {
		return
	}
	if m := l.some.mean(); l.least == 0 || m < l.least {
		l.least = m
	}
	l.some = bucket{}
}

// take adds a closed bucket. It reports a finished sample: its mean stay, and whether answers kept pace with requests.
func (l *latency) take(p *Params, b *bucket) (stay float64, pace, ok bool) {
	l.calm += span
	if b.refused > 0 {
		l.calm = 0
	}
	if l.calm < settle && l.samples > 0 { // the first sample is taken despite refusals: there is nothing else to go by
		l.restart()
		return 0, false, false
	}
	l.sample.add(b, 1)
	if l.taken += span; l.taken > settle/2 {
		l.late.add(b, 1)
	}
	if l.taken < settle-span/2 || l.sample.ended < p.Enough && (l.taken < long || l.sample.ended < p.Few/2) {
		return 0, false, false
	}
	if l.sample.answered < p.Few/2 { // failures alone, which may be fast, say nothing about the latency
		l.restart()
		return 0, false, false
	}
	stay, pace = l.sample.stay(), l.late.kept() >= keeping
	l.queued = l.sample.queued()
	l.more = l.sample.admitted > l.sample.left
	l.grew = l.calm < l.taken || l.sample.admitted-l.sample.left > 2*math.Sqrt(l.sample.admitted)
	l.restart()
	return stay, pace, true
}

func (l *latency) restart() { l.sample, l.late, l.taken, l.full = bucket{}, bucket{}, 0, 0 }

// learn moves the typical latency towards a calm sample that took the given seconds: down by a quarter of the way at once, or
// up by Drift per second. A longer sample counts only if its requests did not wait, since a faster rise takes proof. A first
// sample that was taken while a queue grew, or the CPU was full, is a guess.
func (l *latency) learn(p *Params, stay, seconds float64) {
	if l.typical > 0 && l.queued && l.calm < 2*long && stay > l.typical {
		return
	}
	l.samples++
	l.guessed = (l.queued && l.grew || l.shared) && (l.guessed || l.samples == 1)
	l.running = l.left
	switch {
	case l.samples == 1, l.samples <= believed && (stay < l.typical || !l.queued || !l.more):
		l.typical = stay
	case stay < l.typical:
		l.typical += (stay - l.typical) / 4
	default:
		l.typical = math.Min(stay, l.typical*(1+p.Drift*seconds))
	}
}

// believe sets the typical latency to one that was measured, here or by the process before. A guess remains one until the
// measurement ends.
func (l *latency) believe(stay float64) {
	l.typical, l.samples, l.running = stay, believed, l.left
	l.restart()
}

// known returns the best value available: the typical latency, or the least one.
func (l *latency) known() float64 {
	if l.typical > 0 {
		return l.typical
	}
	return l.least
}

// guess sets the typical latency to the least mean latency of a few answers, until a sample replaces it.
func (l *latency) guess() {
	l.typical, l.samples, l.guessed, l.running = l.least, 0, true, l.left
	if l.least == 0 {
		l.typical = l.some.mean()
	}
	l.restart()
}

// ran returns the share of the time that a quota leaves, of what it left when the latency was measured: the latency includes
// the pauses of then.
func (l *latency) ran(now float64) float64 {
	switch {
	case l.typical == 0: // the least latency is in use, which was taken just now
		return 1
	case l.running == 0:
		return now
	}
	return math.Min(1, now/l.running)
}
