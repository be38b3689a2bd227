package shedder

import (
	"math"
	"time"
)

// The constants of a saturation: of something behind the service, such as a pool of connections or a lock, while the CPU
// is idle.
const (
	growing     = 0.1                    // what in flight gains, as a share of what is answered, while more comes than goes
	growingFor  = time.Second            // how long it has to grow beyond the room
	floodFor    = 40 * time.Millisecond  // how long it is enough for if what is answered has not become less
	flooding    = 0.5                    // what in flight has to gain then, as a share of what went and of what was inside
	chances     = 3                      // standard deviations of chance, by Poisson, that it has to gain
	unharmed    = 0.8                    // the share of the steady rate that is answered still
	bursting    = 10                     // times the room: so many inside that there is no time to wait and see
	unusual     = 1.25                   // times what Little's law expects inside at the latency of late
	probeStep   = 1.5                    // how much further the first probe opens the limit, and each more than the last
	probeMost   = 2                      // how much further a probe opens the limit at most
	probeWorth  = 0.5                    // the share of that step by which more must be answered for it to pay
	probeLeast  = 500 * time.Millisecond // a probe, and what it is compared with, last at least so long
	standing    = 100 * time.Millisecond // without a reading: the process stood still
	enough      = 100                    // answers by which chance is small
	probePause  = 4                      // comparisons without a probe after one that did not pay
	probeRests  = 2                      // how many such probes in a row make the pause longer: it doubles with each
	fillMost    = time.Second            // how long an opened limit may take to be full again
	mostOpening = 256                    // beyond it there is nothing to protect
)

// A saturation watches for a service that answers no more requests however many are inside, though its CPU is idle. What is
// only slow looks the same at first, so the limit is then moved by marginal throughput (Cho et al., Protego, NSDI '23): it
// is opened step by step as long as that yields more answers. A slow service lets it open all the way; a saturated one does
// not.
type saturation struct {
	active bool
	room   float64 // what there was room for when it began, or at best since: what is refused must not shrink it
	gain   float64 // what the room is multiplied by

	grown    time.Time // since when in flight has been growing beyond the room; zero if it is not
	from     int64     // in flight then
	gone     int64     // ended by then
	mark     time.Time // the last comparison, by the end of a closed bucket
	inFlight int64     // at mark
	answered int64     // at mark
	rate     float64   // answers per second before the probe
	refused  time.Time // when something was last refused
	settled  time.Time // when what the last probe changed can be seen
	filling  bool      // the limit was opened and nothing has been refused since
	opened   time.Time // when
	step     float64   // how far the last probe opened the limit; 0 if it was taken back
	pause    int       // comparisons until the next probe
	unpaid   int       // probes in a row that did not pay
	asked    time.Time // since when who asks is counted
	came     int64     // came in by then
	turned   int64     // refused since then
	looked   time.Time // the last reading
	over     bool      // it ended because fewer ask than are answered at the steady rate
}

// observe takes one reading. room is how many requests the service can answer in time, refusing whether any was refused of
// late.
func (s *saturation) observe(r *reading, room float64, refusing bool) {
	if s.active {
		if !math.IsInf(room, 1) { // where nothing is answered any more the room is not known, which does not make it wide
			s.room = math.Max(s.room, room)
		}
		s.steer(r, refusing)
		return
	}
	s.watch(r, room)
}

// watch looks for requests piling up: more inside than there is room for, and ever more.
func (s *saturation) watch(r *reading, room float64) {
	if float64(r.inFlight) <= room {
		s.grown = time.Time{}
		return
	}
	if s.grown.IsZero() {
		s.growFrom(r)
		s.compareFrom(r)
		return
	}
	if r.upTo.Sub(s.mark) >= growingFor/4 {
		if float64(r.inFlight-s.inFlight) <= growing*float64(r.answered-s.answered) {
			s.growFrom(r) // what is inside grows no more: it is slow, and keeps up
		}
		s.compareFrom(r)
	}
	// What turned slow piles up for as long as it takes, and no longer; then Little's law holds of it again.
	patience := max(growingFor, r.latency*9/8+growingFor/4)
	since, usual := r.now.Sub(s.grown), r.steady*r.latency.Seconds()
	grown := since >= patience && float64(r.inFlight-s.from) >= math.Max(room, float64(s.from)) &&
		(float64(r.inFlight) >= unusual*usual || since >= 5*patience)
	if grown || s.flooded(r) || float64(r.inFlight) > bursting*math.Max(room, usual) {
		s.begin(r)
	}
}

// begin makes s active. Its room is for the controller to set.
func (s *saturation) begin(r *reading) {
	*s = saturation{active: true, gain: 1, refused: r.now}
	s.compareFrom(r)
	s.askFrom(r)
}

// flooded reports whether requests pile up though as many are answered as ever. Of what turned slow, none are at first.
func (s *saturation) flooded(r *reading) bool {
	since := r.now.Sub(s.grown)
	if since < max(floodFor, time.Duration(1.5*r.rt)) {
		return false
	}
	gained, went := float64(r.inFlight-s.from), float64(r.gone-s.gone)
	chance := chances * math.Sqrt(gained+2*went) // of those who came, gained and went, and those who went
	return gained >= flooding*math.Max(went, float64(s.from)) && gained >= chance && went >= unharmed*r.steady*since.Seconds()
}

// steer opens the limit by a step, and takes the step back if it did not pay. It ends the saturation when nothing is
// refused any more.
func (s *saturation) steer(r *reading, refusing bool) {
	if refusing {
		s.refused = r.now
	}
	if s.gain >= mostOpening || r.now.Sub(s.refused) > 2*r.latency {
		*s = saturation{}
		return
	}
	if s.needless(r) {
		*s = saturation{over: true}
		return
	}
	draining := float64(r.inFlight) > s.limit()+1
	switch {
	case s.filling && r.refused > 0: // what an opened limit takes in at first does not tell whether more inside yields more
		s.filling, s.settled = false, r.upTo.Add(s.turnover(r))
	case s.filling && r.now.Sub(s.opened) >= fillMost: // so wide that nothing is refused
		s.filling, s.step, s.unpaid = false, 0, 0
	}
	if draining || s.filling {
		s.compareFrom(r)
		return
	}
	if r.upTo.Before(s.settled) {
		s.compareFrom(r)
		return
	}
	since := r.upTo.Sub(s.mark)
	if since < max(probeLeast, r.latency) {
		return
	}
	rate := float64(r.answered-s.answered) / since.Seconds()
	s.compareFrom(r)
	switch {
	case s.step > 1 && rate < s.rate*(1+(s.step-1)*probeWorth):
		s.gain /= s.step
		s.unpaid = min(s.unpaid+1, probeRests)
		s.step, s.pause = 0, probePause<<(s.unpaid-1)
	case s.pause > 0:
		s.pause--
	default:
		if s.step > 1 {
			s.unpaid = 0
		}
		s.step = min(max(s.step, 1)*probeStep, probeMost)
		s.gain *= s.step
		s.filling, s.opened = true, r.now
	}
	s.rate = rate
}

// needless reports whether fewer ask, by more than chance, than were answered at the steady rate. Then there is nothing to
// refuse, whatever the limit refuses. Of a time in which the process stood still nobody knows how many asked.
func (s *saturation) needless(r *reading) bool {
	s.turned += r.refused
	stood := r.now.Sub(s.looked)
	s.looked = r.now
	if stood >= standing {
		s.askFrom(r)
	}
	since := r.now.Sub(s.asked)
	answers := r.steady * since.Seconds()
	if since < max(probeLeast, r.latency) || answers < enough {
		return false
	}
	asked := float64(r.gone + r.inFlight - s.came + s.turned)
	s.askFrom(r)
	return asked+2*math.Sqrt(asked) < answers
}

// limit returns the greatest number of requests in flight.
func (s *saturation) limit() float64 { return s.room * s.gain }

// turnover returns how long it takes until all who are inside are others: the mean of those answered says less than that
// where some wait for long and others do not at all, so by Little's law it is the number inside over their rate.
func (s *saturation) turnover(r *reading) time.Duration {
	if r.steady <= 0 {
		return r.latency
	}
	return max(r.latency, time.Duration(float64(r.inFlight)/r.steady*1e9))
}

func (s *saturation) growFrom(r *reading) { s.grown, s.from, s.gone = r.now, r.inFlight, r.gone }

func (s *saturation) compareFrom(r *reading) {
	s.mark, s.inFlight, s.answered = r.upTo, r.inFlight, r.answered
}

func (s *saturation) askFrom(r *reading) {
	s.asked, s.looked, s.came, s.turned = r.now, r.now, r.gone+r.inFlight, 0
}
