package shedder_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/policytest"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
)

const second = time.Second

// letter is the rule to the letter: the CPU alone. What is learnt outlasts a test.
var letter = shedder.Options{CPUOnly: true, MinLimit: 1, CPUThreshold: 0.8, Window: 20 * second}

// learnt returns a service that knows 1000 requests per second of 50 ms, and has none in flight.
func learnt(t *testing.T, o shedder.Options) *service {
	s := newService(t, o, 50*time.Millisecond)
	s.run(3*second, 1000)
	for range 60 {
		s.sleep(time.Millisecond)
		s.end()
	}
	require.Zero(t, s.shed.Stats().InFlight)
	return s
}

func TestLimitIsPassTimesRT(t *testing.T) {
	s := learnt(t, letter)
	s.hot()
	s.pass(300 * time.Millisecond)
	v := s.shed.Stats()
	require.True(t, v.Overloaded)
	require.Equal(t, shedder.CPUHigh, v.Reason)
	require.InDelta(t, 1000, v.MaxPass, 60)
	require.InDelta(t, 50, v.MinRT.Seconds()*1e3, 2)
	require.InDelta(t, v.MaxPass*v.MinRT.Seconds(), v.Limit, 1e-3, "no more, no less")
	require.Equal(t, int(v.Limit), s.enterMany(1000))
}

func TestSameBucketIsNotSeenUntilItCloses(t *testing.T) {
	r := newRig(t, letter)
	r.look()
	r.enterMany(100)
	r.sleep(20 * time.Millisecond)
	r.leave(100, 20*time.Millisecond, spillway.Success)
	require.Zero(t, r.look().MaxPass)
	r.sleep(20 * time.Millisecond)
	require.Zero(t, r.look().MaxPass, "40 ms")
	r.sleep(80 * time.Millisecond)
	require.Positive(t, r.look().MaxPass, "120 ms: a rate covers two buckets of 50 ms")
}

func TestRefusesAboveTheLimitWhileOverloadedOnly(t *testing.T) {
	tests := []struct {
		name     string
		inFlight int
		cpu      []float64 // a reading every 250 ms
		after    time.Duration
		admit    bool
	}{
		{"at the threshold, below the limit", 40, []float64{0.8}, 0, true},
		{"at the threshold, above the limit", 80, []float64{0.8}, 0, false},
		{"never overloaded", 80, []float64{0.79}, 0, true},
		{"overloaded, then calm for less than the cool-down", 80, []float64{0.8, 0.7}, 0, false},
		{"overloaded for 1.5 s, then one sample below", 80, []float64{0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.7}, 0, false},
		{"overloaded, then calm for 2 s", 80, []float64{0.8, 0.7}, 2 * second, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := learnt(t, letter)
			require.Equal(t, tt.inFlight, s.enterMany(tt.inFlight))
			for _, usage := range tt.cpu {
				s.sleep(250 * time.Millisecond)
				s.cpu.usage, s.cpu.smoothed = usage, usage
				s.look()
			}
			s.pass(tt.after)
			_, err := s.enter()
			if tt.admit {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, spillway.ErrRejected)
			var rej *spillway.Rejection
			require.ErrorAs(t, err, &rej)
			require.Equal(t, spillway.Rejection{Policy: "shedder", Reason: "limit reached", RetryAfter: second}, *rej)
		})
	}
}

// To the letter means the smoothed usage: raw samples, waits for a processor and full pools do not matter.
func TestCPUOnlyLooksAtNothingElse(t *testing.T) {
	s := newService(t, letter, 25*time.Millisecond)
	s.slots = 8
	s.run(5*second, 160)
	s.sched.wait = second
	s.cpu.usage = 1
	s.run(5*second, 640)
	require.Zero(t, s.refused)
	require.False(t, s.shed.Stats().Overloaded)
	require.Zero(t, s.shed.Stats().Drop)
	require.True(t, math.IsInf(s.shed.Stats().Limit, 1))
}

func TestColdBurstOnAHotServerIsBounded(t *testing.T) {
	for cpus, floor := range map[float64]int{0: 4, 1: 4, 2.5: 6, 16: 32} {
		r := newRig(t, shedder.Options{CPUOnly: true})
		r.cpu.limit = cpus
		r.hot()
		r.look()
		require.Equal(t, floor, r.enterMany(1000), "the floor while nothing is known: no more, no less")
	}
}

// A quota or GOMAXPROCS that changes while the process runs is followed by the default MinLimit within 2 s.
func TestTheFloorFollowsTheCPUs(t *testing.T) {
	r := newRig(t, shedder.Options{CPUOnly: true})
	r.hot()
	for _, cpus := range []float64{2, 8, 0.5} {
		r.cpu.limit = cpus
		require.InDelta(t, max(4, 2*math.Ceil(cpus)), r.pass(2*second).Limit, 0)
	}
	o := r.shed.Options()
	o.MinLimit = 3
	require.NoError(t, r.shed.Tune(o))
	require.InDelta(t, 3, r.pass(20*time.Millisecond).Limit, 0, "one that the user sets is what it is")
}

func TestRealSamplerAtAConstant92PercentTripsAt90(t *testing.T) {
	cpu, err := stats.NewCPU(&stats.CPUOptions{Read: func() (float64, error) { return 0.92, nil }})
	require.NoError(t, err)
	r := &rig{t: t, now: time.Unix(1e9, 0)}
	r.shed = spillway.Must(shedder.New(&shedder.Options{CPU: cpu, Sched: &schedStub{}, CPUOnly: true}))
	require.Equal(t, shedder.CPUHigh, r.pass(2*second).Reason)
}

func TestUnknownCPUAdmitsAndSaysSo(t *testing.T) {
	broken := errors.New("no such file")
	for _, only := range []bool{true, false} {
		r := newRig(t, shedder.Options{MinLimit: 1, CPUOnly: only})
		r.hot()
		r.cpu.err = broken
		r.look()
		require.Equal(t, 1000, r.enterMany(1000))
		s := r.shed.Stats()
		require.ErrorIs(t, s.CPUErr, broken)
		require.False(t, s.Overloaded)
		require.Equal(t, int64(1000), s.InFlight)
	}
}

func TestThresholdOffLooksAtNoUsage(t *testing.T) {
	r := newRig(t, shedder.Options{CPUOnly: true, CPUThreshold: shedder.Off})
	r.hot()
	require.False(t, r.pass(2*second).Overloaded)
}

func TestFastHandlerGetsARightLimit(t *testing.T) {
	r := newRig(t, letter)
	for range 3000 { // 10 000/s of 50 µs
		for range 10 {
			_, err := r.enter()
			require.NoError(t, err)
			r.sleep(50 * time.Microsecond)
			r.leave(1, 50*time.Microsecond, spillway.Success)
		}
		r.sleep(500 * time.Microsecond)
	}
	s := r.look()
	require.InDelta(t, 50, float64(s.MinRT)/1e3, 10)
	require.InEpsilon(t, 0.5, s.MaxPass*s.MinRT.Seconds(), 0.2, "half a request inside on average")
}

func TestDisabledAdmitsAndMeasures(t *testing.T) {
	o := letter
	o.Disabled = true
	s := learnt(t, o)
	s.hot()
	s.pass(300 * time.Millisecond)
	require.InDelta(t, 1, s.shed.Stats().CPU, 0)
	require.Positive(t, s.shed.Stats().MinRT)
	require.Equal(t, 1000, s.enterMany(1000))
	o = s.shed.Options()
	o.Disabled = false
	require.NoError(t, s.shed.Tune(o))
	s.pass(40 * time.Millisecond)
	require.True(t, s.shed.Stats().Overloaded)
	require.Zero(t, s.enterMany(1000))
}

// fill enters until 100 requests of p have been asked, and returns how many were admitted.
func (r *rig) fill(p spillway.Priority) (n int) {
	for range 100 {
		if _, err := r.enterAs(p); err == nil {
			n++
		}
	}
	return n
}

// A priority that is alone has the whole limit, whichever it is.
func TestAPriorityAloneHasTheWholeLimit(t *testing.T) {
	for _, p := range []spillway.Priority{math.MinInt, spillway.Sheddable, spillway.Normal, spillway.Critical, math.MaxInt} {
		r := newRig(t, shedder.Options{MaxLimit: 10})
		for range 3 {
			ticket, err := r.enterAs(p)
			require.NoError(t, err)
			r.shed.Done(spillway.Request{Arrived: r.now, Priority: p}, ticket, spillway.Result{})
			r.sleep(20 * time.Millisecond)
		}
		require.Equal(t, 10, r.fill(p), "priority %v", p)
		r.sleep(20 * time.Millisecond)
		require.Zero(t, r.fill(p), "priority %v", p)
	}
}

// While the limit is reached, lower priorities get no place, and higher ones find more.
func TestHigherPrioritiesGoFirst(t *testing.T) {
	r := newRig(t, shedder.Options{MaxLimit: 40})
	type admitted struct {
		p      spillway.Priority
		ticket spillway.Ticket
	}
	var inside []admitted
	for range 100 { // two seconds; 6 of 20 requests can be served: all critical ones, and most of the normal ones
		for i := range 20 {
			p := spillway.Sheddable
			switch {
			case i < 2:
				p = spillway.Critical
			case i < 7:
				p = spillway.Normal
			}
			if ticket, err := r.enterAs(p); err == nil {
				inside = append(inside, admitted{p, ticket})
			}
		}
		for range min(6, len(inside)) {
			a := inside[0]
			inside = inside[1:]
			r.shed.Done(spillway.Request{Arrived: r.now, Priority: a.p}, a.ticket, spillway.Result{Outcome: spillway.Success})
		}
		r.sleep(20 * time.Millisecond)
	}
	s := r.shed.Stats()
	require.Positive(t, s.RefusedSheddable)
	require.Zero(t, s.RefusedCritical)
	require.Less(t, s.AdmittedSheddable, int64(60), "only at the beginning, until the limit is reached")
	require.Zero(t, r.fill(spillway.Sheddable))
	require.Positive(t, r.fill(spillway.Critical), "beyond the limit")
	s = r.shed.Stats()
	require.Equal(t, s.Refused, s.RefusedSheddable+s.RefusedNormal+s.RefusedCritical)
	require.Equal(t, s.Admitted, s.AdmittedSheddable+s.AdmittedNormal+s.AdmittedCritical)
}

// No priority is refused below a MinLimit that the user has set.
func TestMinLimitHoldsForAllPriorities(t *testing.T) {
	r := newRig(t, shedder.Options{MinLimit: 10, CPUOnly: true})
	r.hot()
	r.look()
	require.Equal(t, 10, r.fill(spillway.Sheddable))
}

// Requests that a later policy refused are not admitted, whatever their priority.
func TestAdmittedByPriorityLeavesOutRefusedLater(t *testing.T) {
	shed := spillway.Must(shedder.New(nil))
	gate := spillway.New(shed, policytest.Refuse(spillway.Rejection{Reason: "later"}))
	for _, p := range []spillway.Priority{spillway.Sheddable, spillway.Normal, spillway.Critical} {
		_, err := gate.Enter(t.Context(), spillway.Request{Priority: p})
		require.Error(t, err)
	}
	s := shed.Stats()
	require.Equal(t, []int64{0, 0, 0, 0}, []int64{s.AdmittedSheddable, s.AdmittedNormal, s.AdmittedCritical, s.Admitted})
	permit, err := spillway.New(shed).Enter(t.Context(), spillway.Request{Priority: spillway.Critical + 1})
	require.NoError(t, err)
	require.Equal(t, int64(1), shed.Stats().AdmittedCritical)
	permit.Done(spillway.Success)
	require.Equal(t, int64(1), shed.Stats().AdmittedCritical, "it stays counted when it has ended")
}
