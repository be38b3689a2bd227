package sim

import "time"

// An Event changes something at a time after the beginning, and every so often after that.
type Event struct {
	At, Every time.Duration
	Host      int           // which host, from 1 on, it happens to. If Host is 0, it happens to all.
	Pause     time.Duration // stops all processors, as a garbage collection may
	Speed     float64       // of the processors from now on, 1 is normal; 0 changes nothing
	Quota     float64       // CPUs from now on; 0 changes nothing
	// Blind makes the sensors fail from now on, as where the files of a control group are missing; Sighted ends that.
	Blind, Sighted bool

	// Slower is added to the wait of each stage that has one from now on, on all hosts; negative takes it off again.
	Slower time.Duration
	// Fails is added to the share of requests that fail in the stage called Stage from now on, on all hosts; negative takes
	// it off again. What comes of it is kept within 0 and 1.
	Fails float64
	// Stage is the name of the stages that Slower and Fails are about. If Stage is empty, these are all, and for Fails
	// those with a wait.
	Stage string
	// Clock is how far the clock that policies see jumps, forward or back.
	Clock time.Duration
}

// A condition is what events have made of the stages of one name.
type condition struct {
	slower time.Duration
	fails  float64
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
	s.stages[ev.Stage] = c
	s.skew += ev.Clock
	for i, h := range s.hosts {
		if ev.Host != 0 && ev.Host != i+1 {
			continue
		}
		h.p.stop(ev.Pause)
		setIf(&h.p.speed, ev.Speed)
		setIf(&h.p.quota, ev.Quota)
		h.blind = (h.blind || ev.Blind) && !ev.Sighted
	}
}

// condition returns what holds for a stage now.
func (s *simulation) condition(stage *Stage) condition {
	all := s.stages[""]
	c := condition{slower: all.slower, fails: stage.Fails}
	if stage.Wait != (Dist{}) {
		c.fails += all.fails
	}
	if stage.Name != "" {
		own := s.stages[stage.Name]
		c.slower += own.slower
		c.fails += own.fails
	}
	return c
}

func setIf(field *float64, value float64) {
	if value > 0 {
		*field = value
	}
}
