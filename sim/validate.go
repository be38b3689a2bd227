package sim

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spillway-go/spillway"
)

func (s *Scenario) validate() error {
	if err := s.Machine.validate(); err != nil {
		return err
	}
	if len(s.Classes) == 0 || len(s.Phases) == 0 {
		return errors.New("there must be Classes and Phases")
	}
	for i := range s.Classes {
		if err := s.Classes[i].validate(&s.Machine); err != nil {
			return err
		}
	}
	var length time.Duration
	for i, p := range s.Phases {
		if p.For <= 0 || p.Load < 0 || p.To < 0 || math.IsInf(p.Load+p.To, 0) || math.IsNaN(p.Load+p.To) {
			return fmt.Errorf("phase %d: For must be positive and Load and To not negative, got %v, %v, %v", i, p.For, p.Load, p.To)
		}
		length += p.For
	}
	for i, ev := range s.Events {
		if err := ev.validate(i, s); err != nil {
			return err
		}
	}
	return s.validateTrace(length)
}

func (ev *Event) validate(i int, s *Scenario) error {
	switch {
	case ev.At < 0 || ev.Every < 0 || ev.Host < 0 || ev.Host > s.Machine.Hosts:
		return fmt.Errorf("event %d: At and Every must not be negative and Host in 0..%d, got %v, %v, %d",
			i, s.Machine.Hosts, ev.At, ev.Every, ev.Host)
	case improper(ev.Speed) || improper(ev.Quota) || math.IsNaN(ev.Fails) || math.Abs(ev.Fails) > 1:
		return fmt.Errorf("event %d: Speed and Quota must not be negative and Fails in -1..1, got %v, %v, %v",
			i, ev.Speed, ev.Quota, ev.Fails)
	case improper(ev.Stretch) || ev.Stall < 0 || ev.Cores < 0 || ev.Slots < 0:
		return fmt.Errorf("event %d: Stretch, Stall, Cores and Slots must not be negative, got %v, %v, %d, %d",
			i, ev.Stretch, ev.Stall, ev.Cores, ev.Slots)
	case ev.Slots > 0 && s.Machine.Pools[ev.Pool] == 0:
		return fmt.Errorf("event %d: there is no pool %q", i, ev.Pool)
	}
	return nil
}

// improper reports whether v is negative, infinite or not a number.
func improper(v float64) bool { return !(v >= 0) || math.IsInf(v, 0) }

func (m *Machine) validate() error {
	switch {
	case m.Hosts < 1 || m.Cores < 1:
		return fmt.Errorf("fields Machine.Hosts and Machine.Cores must be at least 1, got %d and %d", m.Hosts, m.Cores)
	case improper(m.Quota) || m.QuotaPeriod < time.Millisecond:
		return fmt.Errorf("field Machine.Quota must not be negative and its period at least 1ms, got %v and %v", m.Quota, m.QuotaPeriod)
	case m.Balance < Random || m.Balance > LeastLoaded:
		return fmt.Errorf("field Machine.Balance: there is no balance %d", m.Balance)
	case m.Cold < 0 || improper(m.ColdFactor):
		return fmt.Errorf("fields Machine.Cold and Machine.ColdFactor must not be negative, got %d and %v", m.Cold, m.ColdFactor)
	}
	return nil
}

func (c *Class) validate(m *Machine) error {
	switch {
	case !(c.Share > 0) || math.IsInf(c.Share, 0):
		return fmt.Errorf("class %q: Share must be positive, got %v", c.Name, c.Share)
	case c.Keys < 0:
		return fmt.Errorf("class %q: Keys must not be negative, got %d", c.Name, c.Keys)
	case c.Timeout < 0:
		return fmt.Errorf("class %q: Timeout must not be negative, got %v", c.Name, c.Timeout)
	case c.Calls < 0:
		return fmt.Errorf("class %q: Calls must not be negative, got %d", c.Name, c.Calls)
	}
	for _, stage := range c.Stages {
		if err := stage.CPU.validate(); err != nil {
			return fmt.Errorf("class %q: CPU: %w", c.Name, err)
		}
		if err := stage.Wait.validate(); err != nil {
			return fmt.Errorf("class %q: Wait: %w", c.Name, err)
		}
		switch {
		case stage.During != "" && m.Pools[stage.During] < 1:
			return fmt.Errorf("class %q: pool %q has no slots", c.Name, stage.During)
		case !(stage.Fails >= 0 && stage.Fails <= 1):
			return fmt.Errorf("class %q: Fails must be in 0..1, got %v", c.Name, stage.Fails)
		case stage.As != 0 && stage.As != spillway.Failure && stage.As != spillway.Dropped:
			return fmt.Errorf("class %q: As must be Failure or Dropped, got %v", c.Name, stage.As)
		}
	}
	return nil
}

func (s *Scenario) validateTrace(length time.Duration) error {
	known := map[string]bool{}
	for _, c := range s.Classes {
		known[c.Name] = true
	}
	var last time.Duration
	for i, a := range s.Trace {
		switch {
		case a.At < last || a.At >= length:
			return fmt.Errorf("arrival %d: At must not be before that of the one before and below %v, got %v", i, length, a.At)
		case a.CPU < 0 || a.Wait < 0:
			return fmt.Errorf("arrival %d: CPU and Wait must not be negative, got %v and %v", i, a.CPU, a.Wait)
		case !known[a.Class]:
			return fmt.Errorf("arrival %d: there is no class %q", i, a.Class)
		}
		last = a.At
	}
	return nil
}
