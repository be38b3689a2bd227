package shedder

import (
	"math"
	"time"
)

// The constants of a saturation: of something behind the service, such as a pool of connections or a lock, while the CPU
// is idle.
const (
	growing     = 0.05                   // what in flight gains, as a share of what is answered, while more comes than goes
	growingFor  = time.Second            // how long it has to grow beyond the room
	few         = 10                     // answers that say too little to tell whether it grows
	floodFor    = 40 * time.Millisecond  // how long it is enough for if what is answered has not become less
	flooding    = 0.5                    // what in flight has to gain then, as a share of what went and of what was inside
	chances     = 3.5                    // standard deviations of chance, by Poisson, that it has to gain
	unharmed    = 0.8                    // the share of the steady rate that is answered still
	bursting    = 9                      // times the room: so many more inside that there is no time to wait and see
	unusual     = 1.25                   // times what Little's law expects inside at the latency of late
	probeStep   = 1.5                    // how much further the first probe opens the limit, and each more than the last
	probeMost   = 2                      // how much further a probe opens the limit at most
	probeWorth  = 0.5                    // the share of that step by which more must be answered for it to pay
	probeLeast  = 500 * time.Millisecond // a probe, and what it is compared with, last at least so long
	standing    = 100 * time.Millisecond // without a reading: the process stood still
	enough      = 100                    // answers by which chance is small
	probeRest   = 4                      // how many times longer the rate is taken after a probe that is over
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
	kept     float64   // seconds that those inside stayed when it was last seen to keep up; 0 if there is room for them
	compared time.Time // the last comparison, by the end of a closed bucket
	inFlight int64     // then
	answered int64     // then
	rate     float64   // answers per second before the probe
	refused  time.Time // when something was last refused
	settled  time.Time // when what the last probe changed can be seen
	filling  bool      // the limit was opened and nothing has been refused since
	step     float64   // what the last probe multiplied the limit by; 0 if it is over
	rests    bool      // a probe is over: before the next one, the rate is taken for longer
	down     bool      // the next probe is to find out whether less will do
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
		s.grown, s.kept = time.Time{}, 0
		return
	}
	if s.grown.IsZero() {
		s.growFrom(r)
		s.compareFrom(r)
		return
	}
	// Each comparison is as long as half of the time since it has been growing, so that what chance hides of a slow growth in
	// the first does not hide it for ever.
	compared, answers := r.upTo.Sub(s.compared), r.answered-s.answered
	long := compared >= max(growingFor/4, r.now.Sub(s.grown)/2)
	if long && (answers >= few || compared >= max(growingFor, 2*r.latency)) {
		if float64(r.inFlight-s.inFlight) <= growing*float64(answers) {
			s.growFrom(r) // what is inside grows no more: it is slow, and keeps up
			if answers >= few {
				s.kept = float64(r.inFlight+s.inFlight) / 2 * compared.Seconds() / float64(answers) // by Little's law
			}
		}
		s.compareFrom(r)
	}
	// If those who stay as long as it takes are answered at the greatest rate, it needs so many. rt does not know, where it was
	// learnt from the few that ended first.
	needed, usual := r.pass*s.kept, r.steady*r.latency.Seconds()
	if float64(r.inFlight-s.from) < needed {
		return
	}
	room = math.Max(room, needed)
	if s.grew(r, room, usual) || s.flooded(r) || float64(r.inFlight-s.from) > bursting*math.Max(room, usual) {
		s.begin(r)
	}
}

// grew reports whether requests pile up for longer than those of something that turned slow: they do for as long as it takes,
// and then Little's law holds of it again. usual is how many it expects.
func (s *saturation) grew(r *reading, room, usual float64) bool {
	patience := max(growingFor, r.latency*9/8+growingFor/4)
	since, gained := r.now.Sub(s.grown), float64(r.inFlight-s.from)
	return since >= patience && gained >= math.Max(room, float64(s.from)) && s.beyondChance(r) &&
		(float64(r.inFlight) >= unusual*usual || since >= 5*patience)
}

// begin makes s active. Its room is for the controller to set.
func (s *saturation) begin(r *reading) {
	*s = saturation{active: true, gain: 1, refused: r.now, kept: s.kept}
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
	return gained >= flooding*math.Max(went, float64(s.from)) && s.beyondChance(r) && went >= unharmed*r.steady*since.Seconds()
}

// beyondChance reports whether so many more are inside than when they began to grow that it is not by chance: of those who
// came, gained and went, and of those who went.
func (s *saturation) beyondChance(r *reading) bool {
	gained, went := float64(r.inFlight-s.from), float64(r.gone-s.gone)
	return gained >= chances*math.Sqrt(gained+2*went)
}

// steer opens the limit by a step, and takes the step back if it did not pay. It ends the saturation when nothing is
// refused any more.
func (s *saturation) steer(r *reading, refusing bool) {
	if refusing {
		s.refused = r.now
	}
	if s.gain >= mostOpening || r.now.Sub(s.refused) > 2*r.latency {
		*s = saturation{kept: s.kept}
		return
	}
	if s.needless(r) {
		*s = saturation{over: true, kept: s.kept}
		return
	}
	// What an opened limit takes in at first does not tell whether more inside yields more, nor does what one less wide still
	// has to let go.
	if s.filling && r.refused == 0 || float64(r.inFlight) > s.limit()+1 {
		s.settled = r.upTo.Add(s.turnover(r))
	} else {
		s.filling = false
	}
	if r.upTo.Before(s.settled) {
		s.compareFrom(r)
		return
	}
	since, least := r.upTo.Sub(s.compared), max(probeLeast, r.latency)
	if s.rests {
		least *= probeRest
	}
	if since < least {
		return
	}
	rate := float64(r.answered-s.answered) / since.Seconds()
	s.compareFrom(r)
	s.judge(rate)
}

// judge decides by the rate of answers what becomes of the last probe, and what is tried next: a wider limit, or one that is
// less wide, since by chance one that does not pay seems to now and then.
func (s *saturation) judge(rate float64) {
	less := rate < s.rate*(1+(s.step-1)*probeWorth)
	s.rate = rate
	switch {
	case s.step > 0 && less: // it did not pay, or it cost something
		s.down = s.step > 1
		s.gain /= s.step
		s.step, s.rests = 0, true
	case s.step > 0 && s.step < 1: // it cost nothing
		s.step, s.rests = 0, true
	case s.down && s.gain > 1:
		s.step, s.rests = math.Max(1/probeStep, 1/s.gain), false
		s.gain *= s.step
	default:
		s.step, s.rests = min(max(s.step, 1)*probeStep, probeMost), false
		s.gain *= s.step
		s.filling = true
	}
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
	s.compared, s.inFlight, s.answered = r.upTo, r.inFlight, r.answered
}

func (s *saturation) askFrom(r *reading) {
	s.asked, s.looked, s.came, s.turned = r.now, r.now, r.gone+r.inFlight, 0
}
