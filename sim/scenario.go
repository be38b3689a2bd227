package sim

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway"
)

// A Scenario is a service and what is asked of it.
type Scenario struct {
	Name    string
	Machine Machine
	Classes []Class
	Client  Client
	Phases  []Phase
	// Events change the machine while it runs.
	Events []Event
	// Capacity is how many requests per second the service can answer at most. If Capacity is 0, it follows from the CPU
	// that the classes need on average and the pools that they use.
	Capacity float64
}

// A Machine is what a host is made of.
type Machine struct {
	Hosts       int            // how many, each with its own gate, load spread at random. If Hosts is 0, it is 1.
	Cores       int            // processors of each. If Cores is 0, it is 2.
	Quota       float64        // CPUs of a quota. If Quota is 0, there is none.
	QuotaPeriod time.Duration  // If QuotaPeriod is 0, it is 100 ms.
	Parse       time.Duration  // CPU that a request needs before the gate sees it. If Parse is 0, it is 25 µs.
	Refuse      time.Duration  // CPU that a refusal needs after it. If Refuse is 0, it is 5 µs.
	Pools       map[string]int // slots of what stages use, by name
}

// A Class is a kind of request.
type Class struct {
	Name     string
	Share    float64 // of all requests, relative to the other classes
	Key      string
	Priority spillway.Priority
	Stages   []Stage
	// Slice is how much CPU a request takes before it lets others run. If Slice is 0, it is 100 µs; 10 ms is where Go
	// takes the processor away.
	Slice time.Duration
}

// A Stage is a part of a request's work: its slot is taken, its CPU used, its wait passed, its slot given back.
type Stage struct {
	CPU    Dist
	Wait   Dist
	During string // the pool whose slot is held; empty for none
}

// A Dist is a distribution of durations: Fixed plus an exponential one of mean Exp.
type Dist struct{ Fixed, Exp time.Duration }

func (d Dist) mean() time.Duration { return d.Fixed + d.Exp }

func (d Dist) draw(rng *rand.Rand) time.Duration {
	v := d.Fixed
	if d.Exp > 0 {
		v += time.Duration(rng.ExpFloat64() * float64(d.Exp))
	}
	return v
}

// A Client is how those behave who ask.
type Client struct {
	Deadline time.Duration // when it gives up; the request goes on. If Deadline is 0, it is 1 s.
	Useful   time.Duration // an answer after it is worth nothing. If Useful is 0, it is 250 ms.
	Retries  int           // how often it asks again after a refusal or a deadline
	Backoff  Dist          // how long it waits before it does. If Backoff is zero, it is 50 ms plus 100 ms exponential.
}

// A Phase is a time of load.
type Phase struct {
	For  time.Duration
	Load float64 // as a share of the capacity, at its beginning
	To   float64 // the share at its end, if Ramp
	Ramp bool
	// Measured marks the phases that the Result is about.
	Measured bool
}

// An Event changes something at a time after the beginning, and every so often after that.
type Event struct {
	At, Every time.Duration
	Pause     time.Duration // stops all processors, as a garbage collection may
	Speed     float64       // of the processors from now on, 1 is normal; 0 changes nothing
	Quota     float64       // CPUs from now on; 0 changes nothing
	// Slower is added to every wait from now on; negative takes it off again.
	Slower time.Duration
}

// withDefaults returns s with every zero field set to its default, or an error that names the field that cannot be right.
func (s Scenario) withDefaults() (Scenario, error) {
	m := &s.Machine
	setDefault(&m.Hosts, 1)
	setDefault(&m.Cores, 2)
	setDefault(&m.QuotaPeriod, 100*time.Millisecond)
	setDefault(&m.Parse, 25*time.Microsecond)
	setDefault(&m.Refuse, 5*time.Microsecond)
	setDefault(&s.Client.Deadline, time.Second)
	setDefault(&s.Client.Useful, 250*time.Millisecond)
	setDefault(&s.Client.Backoff, Dist{Fixed: 50 * time.Millisecond, Exp: 100 * time.Millisecond})
	if err := s.validate(); err != nil {
		return s, fmt.Errorf("sim: scenario %q: %w", s.Name, err)
	}
	classes := append([]Class(nil), s.Classes...)
	for i := range classes {
		setDefault(&classes[i].Slice, 100*time.Microsecond)
	}
	s.Classes = classes
	if s.Capacity == 0 {
		s.Capacity = s.capacity()
	}
	return s, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (s *Scenario) validate() error {
	m := &s.Machine
	switch {
	case m.Hosts < 1 || m.Cores < 1:
		return fmt.Errorf("fields Machine.Hosts and Machine.Cores must be at least 1, got %d and %d", m.Hosts, m.Cores)
	case m.Quota < 0 || m.QuotaPeriod < time.Millisecond:
		return fmt.Errorf("field Machine.Quota must not be negative and its period at least 1ms, got %v and %v", m.Quota, m.QuotaPeriod)
	case len(s.Classes) == 0 || len(s.Phases) == 0:
		return errors.New("there must be Classes and Phases")
	}
	for _, c := range s.Classes {
		if c.Share <= 0 {
			return fmt.Errorf("class %q: Share must be positive, got %v", c.Name, c.Share)
		}
		for _, stage := range c.Stages {
			if stage.During != "" && m.Pools[stage.During] < 1 {
				return fmt.Errorf("class %q: pool %q has no slots", c.Name, stage.During)
			}
		}
	}
	for i, p := range s.Phases {
		if p.For <= 0 || p.Load < 0 || p.To < 0 || math.IsInf(p.Load+p.To, 0) || math.IsNaN(p.Load+p.To) {
			return fmt.Errorf("phase %d: For must be positive and Load and To not negative, got %v, %v, %v", i, p.For, p.Load, p.To)
		}
	}
	return nil
}

// capacity returns how many requests per second all hosts can answer together: what the scarcest thing allows.
func (s *Scenario) capacity() float64 {
	var shares, cpu float64
	held := map[string]float64{}
	for _, c := range s.Classes {
		shares += c.Share
		for _, stage := range c.Stages {
			cpu += c.Share * stage.CPU.mean().Seconds()
			held[stage.During] += c.Share * (stage.CPU.mean() + stage.Wait.mean()).Seconds()
		}
	}
	cpus := float64(s.Machine.Cores)
	if s.Machine.Quota > 0 {
		cpus = math.Min(cpus, s.Machine.Quota)
	}
	most := cpus / (cpu/shares + s.Machine.Parse.Seconds())
	for name, n := range s.Machine.Pools {
		if held[name] > 0 {
			most = math.Min(most, float64(n)*shares/held[name])
		}
	}
	return most * float64(s.Machine.Hosts)
}
