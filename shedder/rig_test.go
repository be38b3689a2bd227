package shedder_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
)

// A rig drives a Shedder in virtual time, with sensors that say what they are told.
type rig struct {
	t     *testing.T
	shed  *shedder.Shedder
	now   time.Time
	cpu   cpuStub
	sched schedStub
}

func newRig(t *testing.T, o shedder.Options) *rig {
	t.Helper()
	r := &rig{t: t, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	o.CPU, o.Sched = &r.cpu, &r.sched
	shed, err := shedder.New(&o)
	require.NoError(t, err)
	r.shed = shed
	return r
}

// cpuStub publishes a sample every 250 ms, as stats.CPU does.
type cpuStub struct {
	usage, smoothed float64
	err             error
	limit           float64
	throttled       time.Duration // of each 100 ms period
	periods         uint64        // that a quota had without a pause
	last            stats.CPUSample
}

func (c *cpuStub) Sample(now time.Time) stats.CPUSample {
	if c.last.Samples == 0 || now.Sub(c.last.Time) >= 250*time.Millisecond {
		c.last = stats.CPUSample{Usage: c.usage, Smoothed: c.smoothed, Limit: c.limit, Source: "stub", Time: now,
			Span: 250 * time.Millisecond, Samples: c.last.Samples + 1}
		c.last.Periods = c.periods
		if c.throttled > 0 {
			c.last.Periods, c.last.ThrottledPeriods, c.last.Throttled = 2, 2, 2*c.throttled
			c.last.Span = 200 * time.Millisecond
		}
	}
	c.last.Err = c.err
	return c.last
}

// schedStub says how long goroutines wait.
type schedStub struct{ wait time.Duration }

func (s *schedStub) Sample(now time.Time) stats.SchedSample {
	return stats.SchedSample{Value: s.wait, Time: now, Count: 1, Samples: 1}
}

// hot makes the CPU read busy from the next sample on, cool makes it read idle.
func (r *rig) hot()  { r.cpu.usage, r.cpu.smoothed = 1, 1 }
func (r *rig) cool() { r.cpu.usage, r.cpu.smoothed = 0.1, 0.1 }

// enter asks once.
func (r *rig) enter() (spillway.Ticket, error) { return r.enterAs(spillway.Normal) }

func (r *rig) enterAs(p spillway.Priority) (spillway.Ticket, error) {
	return r.shed.Admit(context.Background(), spillway.Request{Arrived: r.now, Priority: p})
}

// enterMany asks n times at once and returns how many were admitted.
func (r *rig) enterMany(n int) (admitted int) {
	for range n {
		if _, err := r.enter(); err == nil {
			admitted++
		}
	}
	return admitted
}

// leave ends n requests that arrived a latency ago.
func (r *rig) leave(n int, latency time.Duration, o spillway.Outcome) {
	for range n {
		r.shed.Done(spillway.Request{Arrived: r.now.Add(-latency)}, 0, spillway.Result{Outcome: o, Latency: latency})
	}
}

// sleep lets time pass; look lets the Shedder see it, with a request that says nothing.
func (r *rig) sleep(d time.Duration) { r.now = r.now.Add(d) }

func (r *rig) look() shedder.Stats {
	if t, err := r.enter(); err == nil {
		r.shed.Done(spillway.Request{Arrived: r.now}, t, spillway.Result{Outcome: spillway.Ignored})
	}
	return r.shed.Stats()
}

// A service answers requests in the order of their admission, slots at a time, each after a time of its own. It is driven in
// steps of one millisecond.
type service struct {
	*rig
	slots   int // 1<<20: as many as there are
	takes   time.Duration
	waiting []time.Time // arrivals
	working []job
	good    int // answered within 500 ms
	refused int
	most    int64 // in flight
	due     float64
}

type job struct{ arrived, ends time.Time }

func newService(t *testing.T, o shedder.Options, takes time.Duration) *service {
	s := &service{rig: newRig(t, o), slots: 1 << 20, takes: takes}
	s.cool()
	return s
}

func newPool(t *testing.T, slots int, takes time.Duration) *service {
	s := newService(t, shedder.Options{}, takes)
	s.slots = slots
	return s
}

// run offers rate requests a second for d.
func (s *service) run(d time.Duration, rate float64) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.sleep(time.Millisecond)
		s.end()
		for s.due += rate / 1000; s.due >= 1; s.due-- {
			if _, err := s.enter(); err != nil {
				s.refused++
				continue
			}
			s.waiting = append(s.waiting, s.now)
		}
		s.most = max(s.most, int64(len(s.waiting)+len(s.working)))
		for len(s.working) < s.slots && len(s.waiting) > 0 {
			s.working = append(s.working, job{s.waiting[0], s.now.Add(s.takes)})
			s.waiting = s.waiting[1:]
		}
	}
}

// end answers what is ready.
func (s *service) end() {
	rest := s.working[:0]
	for _, j := range s.working {
		if j.ends.After(s.now) {
			rest = append(rest, j)
			continue
		}
		latency := s.now.Sub(j.arrived)
		s.leave(1, latency, spillway.Success)
		if latency <= 500*time.Millisecond {
			s.good++
		}
	}
	s.working = rest
}

func (s *service) reset() { s.good, s.refused, s.most = 0, 0, 0 }
