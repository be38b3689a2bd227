package shedder_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
)

func TestOptionsThatCannotBeRight(t *testing.T) {
	tests := []struct {
		o    shedder.Options
		want string
	}{
		{shedder.Options{CPUThreshold: 1.5}, "shedder: CPUThreshold must be in (0, 1] or Off, got 1.5"},
		{shedder.Options{CPUThreshold: math.NaN()}, "shedder: CPUThreshold must be in (0, 1] or Off, got NaN"},
		{shedder.Options{CPUThreshold: -0.5}, "shedder: CPUThreshold must be in (0, 1] or Off, got -0.5"},
		{shedder.Options{SLO: time.Millisecond}, "shedder: SLO must be at least 10ms, or 0 for none, got 1ms"},
		{shedder.Options{SLO: -time.Second}, "shedder: SLO must be at least 10ms, or 0 for none, got -1s"},
		{shedder.Options{CoolDown: -time.Second}, "shedder: CoolDown must not be negative, got -1s"},
		{shedder.Options{Window: time.Millisecond}, "shedder: Window must be 500ms to 30s, got 1ms"},
		{shedder.Options{Window: time.Minute}, "shedder: Window must be 500ms to 30s, got 1m0s"},
		{shedder.Options{MinLimit: -2}, "shedder: MinLimit must not be negative, got -2"},
		{shedder.Options{MaxLimit: -1}, "shedder: MaxLimit must be at least 1 and MinLimit, which is 0, got -1"},
		{shedder.Options{MinLimit: 10, MaxLimit: 5}, "shedder: MaxLimit must be at least 1 and MinLimit, which is 10, got 5"},
		{shedder.Options{Rotation: time.Millisecond}, "shedder: Rotation must be at least 1s, or Off, got 1ms"},
		{shedder.Options{Weights: map[string]float64{"a": 0}}, `shedder: Weights["a"] must be in 0.001..1000, got 0`},
		{shedder.Options{MaxShed: 2}, "shedder: MaxShed must be in (0, 1], or 0 for no bound, got 2"},
	}
	for _, tt := range tests {
		_, err := shedder.New(&tt.o)
		require.EqualError(t, err, tt.want)
		r := newRig(t, shedder.Options{})
		before := r.shed.Options()
		require.EqualError(t, r.shed.Tune(tt.o), tt.want)
		require.Equal(t, before, r.shed.Options(), "an error changes nothing")
	}
}

// What is named as the first or the last that can be right is.
func TestOptionsOnTheEdge(t *testing.T) {
	for _, o := range []shedder.Options{
		{CPUThreshold: 1}, {CPUThreshold: shedder.Off}, {SLO: 10 * time.Millisecond}, {Window: 500 * time.Millisecond}, {Window: 30 * time.Second},
		{MinLimit: 7, MaxLimit: 7}, {MaxLimit: 1}, {MaxShed: 1}, {Rotation: shedder.Off},
	} {
		_, err := shedder.New(&o)
		require.NoError(t, err)
	}
}

func TestDefaults(t *testing.T) {
	o := newRig(t, shedder.Options{}).shed.Options()
	require.InDelta(t, 0.9, o.CPUThreshold, 0)
	require.Equal(t, time.Second, o.CoolDown)
	require.Equal(t, time.Hour, o.Rotation)
	require.Equal(t, 5*time.Second, o.Window)
	require.Zero(t, o.SLO)
	require.Zero(t, o.MinLimit, "it follows from the CPUs of the process")
	require.Equal(t, math.MaxInt, o.MaxLimit)
	require.False(t, o.CPUOnly)
}

func TestTuneWhileRunning(t *testing.T) {
	r := newRig(t, shedder.Options{CPUOnly: true})
	r.cpu.usage, r.cpu.smoothed = 0.7, 0.7
	require.False(t, r.look().Overloaded)
	o := r.shed.Options()
	o.CPUThreshold, o.MinLimit, o.CoolDown = 0.6, 7, 100*time.Millisecond
	require.NoError(t, r.shed.Tune(o))
	r.sleep(20 * time.Millisecond)
	require.True(t, r.look().Overloaded)
	require.Equal(t, 7, r.enterMany(100))
	_, err := r.enter()
	var rejection *spillway.Rejection
	require.ErrorAs(t, err, &rejection)
	require.Equal(t, 100*time.Millisecond, rejection.RetryAfter)
	o.MaxLimit = 7
	o.CPUThreshold = 0.9
	require.NoError(t, r.shed.Tune(o))
	require.False(t, r.pass(200*time.Millisecond).Overloaded)
	require.Zero(t, r.enterMany(10), "MaxLimit holds always")
	o.MaxLimit = 0
	require.NoError(t, r.shed.Tune(o))
	r.pass(40 * time.Millisecond)
	require.Equal(t, 10, r.enterMany(10))
}

// The Window says for how long the greatest rate counts. Tune may change it at any time.
func TestTuneChangesTheWindow(t *testing.T) {
	for _, window := range []time.Duration{time.Second, 20 * time.Second} {
		s := newService(t, shedder.Options{}, 20*time.Millisecond)
		s.run(3*time.Second, 1000)
		o := s.shed.Options()
		o.Window = window
		require.NoError(t, s.shed.Tune(o))
		s.run(3*time.Second, 100)
		want := 1000.0
		if window == time.Second {
			want = 100
		}
		require.InEpsilon(t, want, s.shed.Stats().MaxPass, 0.25)
	}
}

// What New alone can set must not be ignored in silence.
func TestTuneRefusesAnotherSensor(t *testing.T) {
	r := newRig(t, shedder.Options{})
	before := r.shed.Options()
	for name, spoil := range map[string]func(o *shedder.Options){
		"CPU":   func(o *shedder.Options) { o.CPU = &cpuStub{} },
		"Sched": func(o *shedder.Options) { o.Sched = &schedStub{} },
	} {
		o := r.shed.Options()
		o.MinLimit = 99
		spoil(&o)
		require.EqualError(t, r.shed.Tune(o), "shedder: Tune: "+name+" cannot change: it must be nil or the present one")
		require.Equal(t, before, r.shed.Options(), "an error changes nothing")
	}
	require.NoError(t, r.shed.Tune(r.shed.Options()), "the present ones")
	require.NoError(t, r.shed.Tune(shedder.Options{}), "none")
	require.Same(t, before.CPU, r.shed.Options().CPU)
}

// uncomparable is a sensor that == panics on.
type uncomparable struct{ values []float64 }

func (u uncomparable) Sample(now time.Time) stats.CPUSample {
	return stats.CPUSample{Usage: u.values[0], Time: now, Samples: 1}
}

func TestTuneTakesSensorsThatCannotBeCompared(t *testing.T) {
	shed := spillway.Must(shedder.New(&shedder.Options{CPU: uncomparable{[]float64{0}}}))
	require.NoError(t, shed.Tune(shed.Options()))
	require.ErrorContains(t, shed.Tune(shedder.Options{CPU: &cpuStub{}}), "CPU cannot change")
}
