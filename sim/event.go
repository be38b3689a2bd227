package sim

import "time"

// An Event changes something at time At, and again after each Every if that is set.
type Event struct {
	At, Every time.Duration
	Host      int           // the affected host, counted from 1. If Host is 0, all hosts are affected.
	Pause     time.Duration // stops all processors, as a garbage collection may
	Speed     float64       // of the processors from now on, 1 is normal; 0 changes nothing
	Quota     float64       // CPUs from now on; 0 changes nothing
	Cores     int           // processors from now on; 0 changes nothing
	Pool      string        // the pool that Slots is about
	Slots     int           // of Pool from now on; 0 changes nothing
	// Blind makes the sensors fail from now on, as if the files of a control group were missing; Sighted ends that.
	Blind, Sighted bool

	// Slower is added to the wait of each stage that has one from now on, on all hosts; a negative value shortens it again.
	Slower time.Duration
	// Stretch multiplies the drawn waits from now on, on all hosts; 1 is normal, and 0 changes nothing. It applies
	// before Slower.
	Stretch float64
	// Stall stops the waits for that long, on all hosts, as a locked table or a stopped database does. A wait in
	// progress continues afterwards; a wait that begins meanwhile starts at the end.
	Stall time.Duration
	// Fails is added to the share of requests that fail in the stage called Stage from now on, on all hosts; a negative
	// value subtracts. The sum is kept within 0 and 1.
	Fails float64
	// Stage is the name of the stages to which Slower, Stretch, Stall and Fails apply. If Stage is empty, they apply to
	// all, and Fails to all stages with a wait.
	Stage string
	// Clock is how far the policies' clock jumps, forward or back.
	Clock time.Duration
}

// A condition is the state of the stages of one name, after the events so far.
type condition struct {
	slower  time.Duration
	stretch float64 // 0 is 1
	fails   float64

	stalled, until time.Duration // the last stall's beginning and end
}

func (s *simulation) plan(ev Event, at time.Duration) {
	s.at(at, func() {
		s.happen(ev)
		if ev.Every > 0 {
			s.plan(ev, at+ev.Every)
		}
	})
}

func (s *simulation) happen(ev Event) {
	c := s.stages[ev.Stage]
	c.slower += ev.Slower
	c.fails += ev.Fails
	setIf(&c.stretch, ev.Stretch)
	if ev.Stall > 0 {
		c.stalled, c.until = s.now, s.now+ev.Stall
	}
	s.stages[ev.Stage] = c
	s.skew += ev.Clock
	for i, h := range s.hosts {
		if ev.Host != 0 && ev.Host != i+1 {
			continue
		}
		h.p.stop(ev.Pause)
		setIf(&h.p.speed, ev.Speed)
		setIf(&h.p.quota, ev.Quota)
		h.p.resize(ev.Cores)
		if ev.Slots > 0 {
			h.pools[ev.Pool].resize(ev.Slots)
		}
		h.blind = (h.blind || ev.Blind) && !ev.Sighted
	}
}

// failing returns the share of requests that fail in a stage now.
func (s *simulation) failing(stage *Stage) float64 {
	fails := stage.Fails
	if stage.Wait != (Dist{}) {
		fails += s.stages[""].fails
	}
	if stage.Name != "" {
		fails += s.stages[stage.Name].fails
	}
	return fails
}

// wait runs then after a stage's wait; drawn is its random part.
func (s *simulation) wait(stage *Stage, drawn time.Duration, then func()) {
	all, own := s.stages[""], condition{}
	if stage.Name != "" {
		own = s.stages[stage.Name]
	}
	for _, by := range []float64{all.stretch, own.stretch} {
		if by > 0 {
			drawn = time.Duration(by * float64(drawn))
		}
	}
	s.waitFrom(stage, s.now, max(0, drawn+all.slower+own.slower), then)
}

// waitFrom runs then once d has passed since from, not counting stalls.
func (s *simulation) waitFrom(stage *Stage, from, d time.Duration, then func()) {
	s.at(from+d, func() {
		for _, c := range []condition{s.stages[""], s.stages[stage.Name]} {
			if c.until > from && c.stalled < s.now {
				s.waitFrom(stage, c.until, d-max(0, c.stalled-from), then)
				return
			}
		}
		then()
	})
}

func setIf(field *float64, value float64) {
	if value > 0 {
		*field = value
	}
}
