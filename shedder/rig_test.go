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
	last            stats.CPUSample
}

func (c *cpuStub) Sample(now time.Time) stats.CPUSample {
	if c.last.Samples == 0 || now.Sub(c.last.Time) >= 250*time.Millisecond {
		c.last = stats.CPUSample{Usage: c.usage, Smoothed: c.smoothed, Limit: c.limit, Source: "stub", Time: now,
			Span: 250 * time.Millisecond, Samples: c.last.Samples + 1}
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

// serve lets n requests a bucket of 100 ms succeed with the given latency, for d.
func (r *rig) serve(d time.Duration, n int, latency time.Duration) {
	for end := r.now.Add(d); r.now.Before(end); {
		admitted := r.enterMany(n)
		r.sleep(latency)
		r.leave(admitted, latency, spillway.Success)
		r.sleep(100*time.Millisecond - latency)
	}
	r.look()
}
