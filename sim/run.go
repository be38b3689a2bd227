package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/spillway-go/spillway"
)

// A simulation is one run of a scenario.
type simulation struct {
	engine
	s      Scenario
	rng    *rand.Rand // arrivals and classes
	work   *rand.Rand // draws the needs of requests, so that they are the same behind every gate
	hosts  []*Host
	turn   int                  // of the hosts, for a balance
	stages map[string]condition // by name
	shares float64
	out    recorder
}

// Run plays s from seed. newGate is called once per host, and returns the gate that its requests enter; a nil gate admits
// all. Gates whose policies queue need [Scenario.Settle]. The Result is the same for the same arguments.
func Run(s Scenario, seed uint64, newGate func(*Host) (*spillway.Gate, error)) (*Result, error) {
	sim, err := newSimulation(s, seed, newGate)
	if err != nil {
		return nil, err
	}
	var at time.Duration
	for i, p := range sim.s.Phases {
		if len(sim.s.Trace) == 0 {
			sim.offer(i, at, p)
		}
		at += p.For
	}
	sim.replay()
	return sim.finish(at), nil
}

func newSimulation(s Scenario, seed uint64, newGate func(*Host) (*spillway.Gate, error)) (*simulation, error) {
	s, err := s.withDefaults()
	if err != nil {
		return nil, err
	}
	sim := &simulation{
		s: s, rng: rand.New(rand.NewPCG(seed, 1)), work: rand.New(rand.NewPCG(seed, 2)), stages: map[string]condition{},
	}
	for _, c := range s.Classes {
		sim.shares += c.Share
	}
	for range s.Machine.Hosts {
		h := newHost(&sim.engine, &s.Machine)
		if h.gate, err = newGate(h); err != nil {
			return nil, fmt.Errorf("sim: %w", err)
		}
		if h.gate == nil {
			h.gate = spillway.New()
		}
		sim.hosts = append(sim.hosts, h)
	}
	for _, ev := range s.Events {
		sim.plan(ev, ev.At)
	}
	sim.settle, sim.woken = s.Settle, make(chan struct{}, 1)
	sim.out.init(sim)
	return sim, nil
}

// finish runs everything up to the given time, and a little longer so that the last requests are answered.
func (s *simulation) finish(at time.Duration) *Result {
	s.engine.run(at)
	s.out.close()
	s.engine.run(at + s.s.Client.Deadline)
	return s.out.result()
}

// offer plans the arrivals of a phase one by one: a Poisson process whose rate may ramp.
func (s *simulation) offer(phase int, from time.Duration, p Phase) {
	most := max(p.Load, p.To)
	if !p.Ramp {
		most = p.Load
	}
	if most == 0 {
		return
	}
	var next func()
	next = func() {
		s.after(time.Duration(s.rng.ExpFloat64()/(most*s.s.Capacity)*1e9), func() {
			if s.now >= from+p.For {
				return
			}
			load := p.Load
			if p.Ramp {
				load += (p.To - p.Load) * float64(s.now-from) / float64(p.For)
			}
			if s.rng.Float64()*most < load {
				class := s.pick()
				s.send(&call{class: class, key: s.key(class), first: s.now, phase: phase})
			}
			next()
		})
	}
	s.at(from, next)
}

func (s *simulation) pick() *Class {
	x := s.rng.Float64() * s.shares
	for i := range s.s.Classes {
		if x -= s.s.Classes[i].Share; x < 0 {
			return &s.s.Classes[i]
		}
	}
	return &s.s.Classes[len(s.s.Classes)-1]
}

// key draws the key of a call.
func (s *simulation) key(c *Class) string {
	if c.Keys == 0 {
		return c.Key
	}
	return c.Key + strconv.Itoa(s.rng.IntN(c.Keys))
}
