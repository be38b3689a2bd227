package sim

import (
	"context"
	"time"

	"github.com/spillway-go/spillway"
)

// A call is one logical call of a client: one request, or several if it retries or its class has more Calls than one.
type call struct {
	class   *Class
	key     string
	first   time.Duration // when it first asked
	began   time.Duration // time of its last request, except for requests that follow a served one
	retries int
	served  int // of the calls of the class
	phase   int
	trace   *Arrival // its recorded needs, or nil
}

// A request is one of a call, on one host.
type request struct {
	s        *simulation
	c        *call
	h        *Host
	sent     time.Duration
	answered bool
	heard    func(now time.Time, refused bool) // by Client.Before, or nil
	leave    context.CancelFunc                // ends its wait in a gate; nil if no policy queues
}

// describe returns the Request that the gate sees, now.
func (r *request) describe() spillway.Request {
	c := r.c
	return spillway.Request{
		Key: c.key, Route: c.class.Route, Priority: c.class.Priority + c.class.Raise*spillway.Priority(c.served),
		Timeout: c.class.Timeout, Arrived: r.s.time(),
	}
}

// tell tells the client that it has an answer.
func (r *request) tell(refused bool) {
	if r.heard != nil {
		r.heard(r.s.time(), refused)
	}
}

// send begins c, or begins it again.
func (s *simulation) send(c *call) {
	c.began = s.now
	s.out.sent(c)
	s.ask(c)
}

// ask sends one request of c.
func (s *simulation) ask(c *call) {
	h := s.choose()
	r := &request{s: s, c: c, h: h, sent: s.now}
	if before := s.s.Client.Before; before != nil {
		var send bool
		if r.heard, send = before(h, r.describe()); !send {
			s.out.refused(c, 0)
			s.again(c)
			return
		}
	}
	h.owed++
	h.sent++
	giveUp := func() {
		if r.answer() {
			s.out.timedOut(c)
			s.again(c)
		}
	}
	if c.class.Timeout > 0 {
		s.after(c.class.Timeout, giveUp)
	} else {
		s.last(s.now+s.s.Client.Deadline, giveUp)
	}
	h.p.add(s.s.Machine.Parse, c.class.Slice, r.enter)
}

// answer reports whether the client still waits, and ends its wait.
func (r *request) answer() bool {
	if r.answered {
		return false
	}
	r.answered = true
	if r.leave != nil {
		r.leave()
	}
	r.h.owed--
	return true
}

func (r *request) enter() {
	entered, ask, ctx := r.s.now, r.describe(), context.Background()
	if r.s.settle == nil {
		permit, err := r.h.gate.Enter(ctx, ask)
		r.entered(entered, &permit, err)
		return
	}
	ctx, r.leave = context.WithCancel(ctx)
	r.s.apart(func() (do func()) {
		permit, err := r.h.gate.Enter(ctx, ask)
		return func() { r.entered(entered, &permit, err) }
	})
}

// entered goes on with the answer of the gate.
func (r *request) entered(entered time.Duration, permit *spillway.Permit, err error) {
	s, c, h := r.s, r.c, r.h
	if err != nil {
		h.refused++
		h.p.add(s.s.Machine.Refuse, c.class.Slice, func() {
			if r.answer() {
				r.tell(true)
				s.out.refused(c, s.now-r.sent)
				s.again(c)
			}
		})
		return
	}
	h.admitted++
	cold := h.admitted <= s.s.Machine.Cold
	s.stage(r, 0, cold, func(o spillway.Outcome) {
		if late := c.class.Timeout > 0 && s.now-entered > c.class.Timeout; late {
			permit.DoneAt(s.time(), spillway.Ignored, 0)
		} else {
			permit.DoneAt(s.time(), o, 0)
		}
		r.done(o)
	})
}

func (r *request) done(o spillway.Outcome) {
	if !r.answer() {
		return
	}
	r.tell(false)
	s, c := r.s, r.c
	if o != spillway.Success {
		s.out.failed(c)
		s.again(c)
		return
	}
	r.h.served++
	if c.served++; c.served < c.class.Calls {
		s.ask(c)
		return
	}
	s.out.served(c, s.now-c.began)
}

// again lets the client of c retry, if it does.
func (s *simulation) again(c *call) {
	if c.retries >= s.s.Client.Retries {
		return
	}
	c.retries++
	s.after(s.s.Client.Backoff.draw(s.work), func() { s.send(c) })
}

// stage goes through the stages of a request from the i-th on, and then does done.
func (s *simulation) stage(r *request, i int, cold bool, done func(spillway.Outcome)) {
	class := r.c.class
	if i == len(class.Stages) {
		done(spillway.Success)
		return
	}
	stage := &class.Stages[i]
	cpu, wait := stage.CPU.draw(s.work), stage.Wait.draw(s.work)
	waits := stage.Wait != (Dist{})
	if t := r.c.trace; t != nil && i == 0 {
		cpu, wait, waits = t.CPU, t.Wait, t.Wait > 0
	}
	if cold {
		cpu = time.Duration(float64(cpu) * s.s.Machine.ColdFactor)
	}
	fails := s.failing(stage)
	next := func() {
		if fails > 0 && s.work.Float64() < fails {
			done(max(stage.As, spillway.Failure))
			return
		}
		s.stage(r, i+1, cold, done)
	}
	work := func(then func()) {
		passWait := then
		if waits {
			passWait = func() { s.wait(stage, wait, func() { r.h.p.wake(then) }) }
		}
		if cpu == 0 {
			passWait()
			return
		}
		r.h.p.add(cpu, class.Slice, passWait)
	}
	pool := r.h.pools[stage.During]
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

// choose picks the host that the balancer sends the next request to.
func (s *simulation) choose() *Host {
	switch s.s.Machine.Balance {
	case RoundRobin:
		s.turn++
		return s.hosts[s.turn%len(s.hosts)]
	case LeastLoaded:
		// Equal hosts take turns; otherwise the first host would get all requests of a light load.
		s.turn++
		best := s.hosts[s.turn%len(s.hosts)]
		for i := range s.hosts {
			if h := s.hosts[(s.turn+i)%len(s.hosts)]; h.owed < best.owed {
				best = h
			}
		}
		return best
	}
	return s.hosts[s.rng.IntN(len(s.hosts))]
}
