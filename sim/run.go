package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway"
)

// A simulation is one run of a scenario.
type simulation struct {
	engine
	s      Scenario
	rng    *rand.Rand // arrivals and classes
	work   *rand.Rand // what a request needs, so that it needs the same behind every gate
	hosts  []*Host
	slower time.Duration
	shares float64
	out    recorder
}

// A call is what a client wants: one request, or several if it retries.
type call struct {
	class   *Class
	first   time.Duration // when it first asked
	retries int
	phase   int
}

// Run plays s from seed. newGate is called once per host, and returns the gate that its requests enter; a nil gate admits
// all. A gate whose policies queue cannot be simulated: it would block. The Result is the same for the same arguments.
func Run(s Scenario, seed uint64, newGate func(*Host) (*spillway.Gate, error)) (*Result, error) {
	sim, err := newSimulation(s, seed, newGate)
	if err != nil {
		return nil, err
	}
	var at time.Duration
	for i, p := range sim.s.Phases {
		sim.offer(i, at, p)
		at += p.For
	}
	return sim.finish(at), nil
}

func newSimulation(s Scenario, seed uint64, newGate func(*Host) (*spillway.Gate, error)) (*simulation, error) {
	s, err := s.withDefaults()
	if err != nil {
		return nil, err
	}
	sim := &simulation{s: s, rng: rand.New(rand.NewPCG(seed, 1)), work: rand.New(rand.NewPCG(seed, 2))}
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
	sim.out.init(sim)
	return sim, nil
}

// finish runs everything up to the given time, and a little longer so that the last ones are answered.
func (s *simulation) finish(at time.Duration) *Result {
	s.engine.run(at)
	s.out.close()
	s.engine.run(at + s.s.Client.Deadline)
	return s.out.result()
}

func (s *simulation) plan(ev Event, at time.Duration) {
	s.at(at, func() {
		s.slower += ev.Slower
		for _, h := range s.hosts {
			h.p.stop(ev.Pause)
			setIf(&h.p.speed, ev.Speed)
			setIf(&h.p.quota, ev.Quota)
		}
		if ev.Every > 0 {
			s.plan(ev, at+ev.Every)
		}
	})
}

func setIf(field *float64, value float64) {
	if value > 0 {
		*field = value
	}
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
				s.ask(&call{class: s.pick(), first: s.now, phase: phase})
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

// ask sends one request of c.
func (s *simulation) ask(c *call) {
	h := s.hosts[s.rng.IntN(len(s.hosts))]
	sent := s.now
	answered := false
	s.out.sent(c)
	s.after(s.s.Client.Deadline, func() {
		if !answered {
			answered = true
			s.out.timedOut(c)
			s.again(c)
		}
	})
	refused := func() {
		if !answered {
			answered = true
			s.out.refused(c, s.now-sent)
			s.again(c)
		}
	}
	served := func() {
		if !answered {
			answered = true
			s.out.served(c, s.now-sent)
		}
	}
	h.p.add(s.s.Machine.Parse, c.class.Slice, func() {
		permit, err := h.gate.Enter(context.Background(), spillway.Request{
			Key: c.class.Key, Priority: c.class.Priority, Arrived: s.time(),
		})
		if err != nil {
			h.p.add(s.s.Machine.Refuse, c.class.Slice, refused)
			return
		}
		s.stage(h, c.class, 0, func() {
			permit.DoneAt(s.time(), spillway.Success)
			served()
		})
	})
}

// again lets the client of c retry, if it does.
func (s *simulation) again(c *call) {
	if c.retries >= s.s.Client.Retries {
		return
	}
	c.retries++
	s.after(s.s.Client.Backoff.draw(s.work), func() { s.ask(c) })
}

// stage goes through the stages of a request from the i-th on, and then does done.
func (s *simulation) stage(h *Host, class *Class, i int, done func()) {
	if i == len(class.Stages) {
		done()
		return
	}
	stage := class.Stages[i]
	cpu, wait := stage.CPU.draw(s.work), stage.Wait.draw(s.work)
	next := func() { s.stage(h, class, i+1, done) }
	work := func(then func()) {
		passWait := then
		if stage.Wait != (Dist{}) {
			passWait = func() { s.after(max(0, wait+s.slower), then) }
		}
		if cpu == 0 {
			passWait()
			return
		}
		h.p.add(cpu, class.Slice, passWait)
	}
	pool := h.pools[stage.During]
	if pool == nil {
		work(next)
		return
	}
	pool.take(func() {
		work(func() {
			pool.give()
			next()
		})
	})
}
