package shedder_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
)

const second = time.Second

// literal is the rule to the letter: no allowance, no goroutines looked at.
var literal = shedder.Options{MaxDelay: shedder.Off, Window: second, Buckets: 10, MinLimit: 1, CPUThreshold: 0.8}

// learnt returns a rig that has served (i+1)·100 requests of (10·i + 5.5) ms in the i-th of ten buckets.
func learnt(t *testing.T, o shedder.Options) *rig {
	r := newRig(t, o)
	r.look()
	start := r.now
	for i := range 10 {
		latency := time.Duration(10*i)*time.Millisecond + 5500*time.Microsecond
		require.Equal(t, (i+1)*100, r.enterMany((i+1)*100))
		r.sleep(latency)
		r.leave((i+1)*100, latency, spillway.Success)
		r.now = start.Add(time.Duration(i+1) * 100 * time.Millisecond)
		r.look()
	}
	r.now = start.Add(999 * time.Millisecond) // the tenth bucket is not closed yet
	return r
}

func TestLimitIsPassTimesRT(t *testing.T) {
	r := learnt(t, literal)
	r.hot()
	r.sleep(0)
	r.cpu.last.Time = time.Time{} // a sample is due
	r.sleep(30 * time.Millisecond)
	s := r.look()
	require.InDelta(t, 5.5, float64(s.MinRT)/1e6, 0.001, "the least average of a bucket, not rounded to milliseconds")
	require.InDelta(t, 10000, s.MaxPass, 1e-6, "1000 in a bucket of 100 ms")
	require.InDelta(t, 55, s.Limit, 1e-6)
	require.InDelta(t, 1, s.Gain, 1e-9)
	require.True(t, s.Overloaded)
}

func TestSameBucketIsNotSeenUntilItCloses(t *testing.T) {
	r := newRig(t, literal)
	r.look()
	r.enterMany(100)
	r.leave(50, time.Millisecond, spillway.Success)
	r.sleep(50 * time.Millisecond)
	require.Zero(t, r.look().MaxPass)
	r.leave(50, time.Millisecond, spillway.Success)
	r.sleep(60 * time.Millisecond)
	require.InDelta(t, 1000, r.look().MaxPass, 1e-6, "100 in a bucket of 100 ms")
}

func TestRefusesAboveTheLimitWhileOverloadedOnly(t *testing.T) {
	tests := []struct {
		name     string
		inFlight int
		cpu      []float64 // a reading every 250 ms
		after    time.Duration
		admit    bool
	}{
		{"at the threshold, below the limit", 50, []float64{0.8}, 0, true},
		{"at the threshold, above the limit", 80, []float64{0.8}, 0, false},
		{"never overloaded", 80, []float64{0.7}, 0, true},
		{"overloaded, then calm for less than the cool-down", 80, []float64{0.8, 0.7}, 0, false},
		{"overloaded for 1.5 s, then one sample below", 80, []float64{0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.7}, 0, false},
		{"overloaded, then calm for 2 s", 80, []float64{0.8, 0.7}, 2 * second, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := literal
			o.Window, o.Buckets = 20*second, 200 // what was learnt outlasts the test
			r := learnt(t, o)
			for range tt.inFlight {
				_, err := r.enter()
				require.NoError(t, err)
			}
			for _, usage := range tt.cpu {
				r.sleep(250 * time.Millisecond)
				r.cpu.usage, r.cpu.smoothed = usage, usage
				r.look()
			}
			for end := r.now.Add(tt.after); r.now.Before(end); r.sleep(50 * time.Millisecond) {
				r.look() // arrivals keep coming
			}
			_, err := r.enter()
			if tt.admit {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, spillway.ErrRejected)
			var rej *spillway.Rejection
			require.ErrorAs(t, err, &rej)
			require.Equal(t, spillway.Rejection{Policy: "shedder", Reason: shedder.ReasonLimit, RetryAfter: second}, *rej)
		})
	}
}

func TestColdBurstOnAHotServerIsBounded(t *testing.T) {
	r := newRig(t, shedder.Options{})
	r.hot()
	r.look()
	admitted := r.enterMany(1000)
	require.Equal(t, max(4, 2*runtime.GOMAXPROCS(0)), admitted, "the floor while nothing is known: no more, no less")
}

func TestStreakSeesAStepLongBeforeTheAverage(t *testing.T) {
	for _, streak := range []int{0, shedder.Off} {
		r := newRig(t, shedder.Options{Streak: streak})
		r.cool()
		r.look()
		r.cpu.usage, r.cpu.smoothed = 1, 0.5 // the average takes seconds more
		var at time.Duration
		for ; at < 3*second && !r.look().Overloaded; at += 20 * time.Millisecond {
			r.sleep(20 * time.Millisecond)
		}
		if streak == shedder.Off {
			require.Equal(t, 3*second, at, "the pure average was asked for")
			continue
		}
		require.LessOrEqual(t, at, 1100*time.Millisecond)
		require.Equal(t, shedder.CPUStreak, r.look().Reason)
	}
}

func TestRealSamplerAtAConstant92PercentTripsAt90(t *testing.T) {
	cpu, err := stats.NewCPU(&stats.CPUOptions{Source: stats.CPUFunc(func() (float64, error) { return 0.92, nil })})
	require.NoError(t, err)
	shed, err := shedder.New(&shedder.Options{CPU: cpu, Sched: &schedStub{}, Streak: shedder.Off})
	require.NoError(t, err)
	now := time.Unix(1e9, 0)
	for range 8 {
		_, _ = shed.Admit(context.Background(), spillway.Request{Arrived: now})
		now = now.Add(250 * time.Millisecond)
	}
	require.True(t, shed.Stats().Overloaded)
	require.Equal(t, shedder.CPUHigh, shed.Stats().Reason)
}

func TestUnknownCPUAdmitsAndSaysSo(t *testing.T) {
	broken := errors.New("no such file")
	r := newRig(t, shedder.Options{MinLimit: 1})
	r.hot()
	r.cpu.err = broken
	r.look()
	require.Equal(t, 1000, r.enterMany(1000))
	s := r.shed.Stats()
	require.ErrorIs(t, s.CPUErr, broken)
	require.False(t, s.Overloaded)
	require.Equal(t, int64(1000), s.InFlight)
}

func TestReopensByARamp(t *testing.T) {
	r := newRig(t, shedder.Options{MinLimit: 4})
	r.hot()
	r.look()
	require.Equal(t, 4, r.enterMany(100))
	r.cool()
	r.sleep(250 * time.Millisecond)
	r.look()
	var limits []float64
	for range 60 { // arrivals keep coming, all places stay taken
		r.sleep(50 * time.Millisecond)
		r.enterMany(50)
		limits = append(limits, r.shed.Stats().Limit)
	}
	require.InDelta(t, 4, limits[13], 0.1, "still closed before the cool-down is over")
	require.True(t, math.IsInf(limits[59], 1), "open in the end: %v", limits)
	steps := 0
	for i := 1; i < len(limits); i++ {
		require.GreaterOrEqual(t, limits[i], limits[i-1])
		if limits[i] > limits[i-1] {
			steps++
		}
	}
	require.Greater(t, steps, 10, "a ramp, not a switch: %v", limits)
}

func TestOnlySuccessesTeach(t *testing.T) {
	r := newRig(t, shedder.Options{})
	r.serve(2*second, 20, 10*time.Millisecond)
	before := r.shed.Stats()
	require.Equal(t, 10*time.Millisecond, before.MinRT)
	for range 100 { // 10 s of requests that their clients gave up, and of fast failures
		r.enterMany(40)
		r.sleep(100 * time.Millisecond)
		r.leave(20, 50*time.Microsecond, spillway.Ignored)
		r.leave(20, 50*time.Microsecond, spillway.Failure)
	}
	after := r.look()
	require.Equal(t, before.MinRT, after.MinRT)
	require.Zero(t, after.MaxPass, "nothing succeeded in the window")
	require.Zero(t, after.InFlight)
}

func TestFastHandlerGetsARightLimit(t *testing.T) {
	o := literal
	o.Window, o.Buckets = 5*second, 50
	r := newRig(t, o)
	r.serve(second, 1000, 50*time.Microsecond) // 10 000/s of 50 µs
	s := r.look()
	require.Equal(t, 50*time.Microsecond, s.MinRT)
	require.InDelta(t, 0.5, s.MaxPass*s.MinRT.Seconds(), 1e-9, "half a request inside on average")
}

func TestFewSamplesDoNotDecideTheLatency(t *testing.T) {
	r := newRig(t, shedder.Options{})
	r.serve(second, 20, 10*time.Millisecond)
	r.serve(100*time.Millisecond, 3, time.Millisecond) // three lucky ones
	r.serve(second, 20, 10*time.Millisecond)
	require.Greater(t, r.look().MinRT, 8*time.Millisecond)
}

func TestOverloadCannotJustifyItself(t *testing.T) {
	r := newRig(t, shedder.Options{})
	r.serve(5*second, 20, 10*time.Millisecond)
	calm := r.shed.Stats().MinRT
	r.hot()
	for range 1200 { // two minutes in which every answer takes half a second
		r.enterMany(60)
		r.sleep(100 * time.Millisecond)
		r.leave(min(20, int(r.shed.Stats().InFlight)), 500*time.Millisecond, spillway.Success)
	}
	s := r.look()
	require.True(t, s.Overloaded)
	require.Equal(t, calm, s.MinRT)
	require.Less(t, s.Limit, 30.0, "200/s × (10 ms + 100 ms), not × 500 ms")
}

func TestBacklogWorkedOffAtOnceIsNotARate(t *testing.T) {
	r := newRig(t, shedder.Options{})
	r.serve(2*second, 10, 5*time.Millisecond)
	r.enterMany(300)
	r.sleep(700 * time.Millisecond)
	r.leave(300, 650*time.Millisecond, spillway.Success) // all end in one bucket
	r.sleep(200 * time.Millisecond)
	require.InDelta(t, 440, r.look().MaxPass, 60, "300 in 0.65 s, not in 0.1 s")
}

func TestOldLatencyIsForgottenInCalmTimeOnly(t *testing.T) {
	r := newRig(t, shedder.Options{})
	r.serve(5*second, 20, 5*time.Millisecond)
	r.serve(50*second, 20, 40*time.Millisecond)
	require.Equal(t, 5*time.Millisecond, r.shed.Stats().MinRT)
	r.serve(20*second, 20, 40*time.Millisecond)
	require.Equal(t, 40*time.Millisecond, r.shed.Stats().MinRT, "after a minute of calm the service is what it is now")
}

func TestSlowDependencyWithIdleCPUIsNotOverload(t *testing.T) {
	r := newRig(t, shedder.Options{})
	r.cool()
	r.serve(5*second, 10, 50*time.Millisecond)
	for i := range 600 { // for a minute everything takes 500 ms, and nothing waits for a processor
		require.Equal(t, 10, r.enterMany(10))
		r.sleep(100 * time.Millisecond)
		if i >= 4 {
			r.leave(10, 500*time.Millisecond, spillway.Success)
		}
	}
	require.Zero(t, r.shed.Stats().Refused)
}

func TestDisabledAdmitsAndMeasures(t *testing.T) {
	r := newRig(t, shedder.Options{Disabled: true})
	r.hot()
	r.look()
	require.Equal(t, 1000, r.enterMany(1000))
	require.True(t, r.look().Overloaded)
	o := r.shed.Options()
	o.Disabled = false
	require.NoError(t, r.shed.Tune(o))
	r.sleep(50 * time.Millisecond)
	r.look()
	require.Zero(t, r.enterMany(1000))
}
