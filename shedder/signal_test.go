package shedder_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
)

// gauge is a sign of overload that says what it is told.
type gauge struct {
	value float64
	err   error
	panic any
	reads int
}

func (g *gauge) read(time.Time) (float64, error) {
	g.reads++
	if g.panic != nil {
		panic(g.panic)
	}
	return g.value, g.err
}

func (g *gauge) signal(name string, threshold float64) shedder.Signal {
	return shedder.Signal{Name: name, Read: g.read, Threshold: threshold}
}

// pass lets d go by, with an arrival in every tick.
func (r *rig) pass(d time.Duration) shedder.Stats {
	for end := r.now.Add(d); r.now.Before(end); r.look() {
		r.sleep(20 * time.Millisecond)
	}
	return r.shed.Stats()
}

func TestSignalAtItsThresholdMeansOverload(t *testing.T) {
	var memory, pool gauge
	r := newRig(t, shedder.Options{Signals: []shedder.Signal{memory.signal("memory", 0.9), pool.signal("pool", 100)}, MinLimit: 3})
	memory.value, pool.value = 0.89, 99
	require.False(t, r.pass(time.Second).Overloaded)
	require.Equal(t, 1000, r.enterMany(1000))
	r.leave(1000, time.Millisecond, spillway.Failure)

	pool.value = 100
	s := r.pass(20 * time.Millisecond)
	require.True(t, s.Overloaded, "by the next tick")
	require.Equal(t, shedder.SignalHigh, s.Reason)
	require.Equal(t, "pool", s.Signal)
	require.Equal(t, "pool", s.Why())
	require.NoError(t, s.SignalErr)
	require.Equal(t, 3, r.enterMany(1000), "the limit is in force")
	r.leave(3, time.Millisecond, spillway.Failure)

	memory.value = 1
	require.Equal(t, "memory", r.pass(20*time.Millisecond).Why(), "the first that is high")
	memory.value, pool.value = 0, 0
	s = r.pass(100 * time.Millisecond)
	require.True(t, s.Overloaded, "it cools down")
	require.Equal(t, shedder.SignalHigh, s.Reason)
	require.Equal(t, "signal", s.Why())
	require.Empty(t, s.Signal)
	require.False(t, r.pass(3*time.Second).Overloaded)
}

func TestSignalDoesNotHideTheCPU(t *testing.T) {
	g := gauge{value: 1}
	r := newRig(t, shedder.Options{Signals: []shedder.Signal{g.signal("memory", 1)}})
	r.hot()
	s := r.look()
	require.Equal(t, shedder.CPUHigh, s.Reason)
	require.Equal(t, "cpu", s.Why())
	require.Equal(t, "memory", s.Signal)
}

func TestSignalThatCannotBeReadIsCalmAndTold(t *testing.T) {
	down := errors.New("no such file")
	for name, broken := range map[string]gauge{
		"error": {value: 1, err: down}, "panic": {panic: "index out of range"}, "NaN": {value: math.NaN()}, "panic with error": {panic: down},
	} {
		t.Run(name, func(t *testing.T) {
			bad, good := broken, gauge{value: 0.5}
			r := newRig(t, shedder.Options{Signals: []shedder.Signal{bad.signal("disk", 0), good.signal("memory", 1)}})
			s := r.look()
			require.False(t, s.Overloaded)
			require.Empty(t, s.Signal)
			require.ErrorContains(t, s.SignalErr, "shedder: signal disk: ")
			good.value = 1
			s = r.pass(20 * time.Millisecond)
			require.Equal(t, "memory", s.Why(), "the others still count")
			require.Error(t, s.SignalErr)
			bad = gauge{}
			require.NoError(t, r.pass(20*time.Millisecond).SignalErr)
		})
	}
}

func TestAllBrokenSignalsAreTold(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	a, b := gauge{err: one}, gauge{err: two}
	r := newRig(t, shedder.Options{Signals: []shedder.Signal{a.signal("a", 0), b.signal("b", 0)}})
	err := r.look().SignalErr
	require.ErrorIs(t, err, one)
	require.ErrorIs(t, err, two)
}

func TestSignalIsReadOnceATick(t *testing.T) {
	var g gauge
	r := newRig(t, shedder.Options{Signals: []shedder.Signal{g.signal("memory", 1)}})
	for range 1000 {
		r.enterMany(10)
		r.sleep(time.Millisecond)
	}
	require.Equal(t, 50, g.reads, "in one second")
}

func TestTuneChangesThresholds(t *testing.T) {
	g := gauge{value: 0.8}
	signals := []shedder.Signal{g.signal("memory", 0.9)}
	r := newRig(t, shedder.Options{Signals: signals})
	signals[0].Threshold = 0
	o := r.shed.Options()
	o.Signals[0].Threshold = 0.7
	require.False(t, r.pass(40*time.Millisecond).Overloaded, "neither slice is the one in use")
	require.NoError(t, r.shed.Tune(o))
	require.True(t, r.pass(20*time.Millisecond).Overloaded)
	o.Signals = nil
	require.NoError(t, r.shed.Tune(o))
	require.False(t, r.pass(3*time.Second).Overloaded)
}

func TestSignalsThatCannotBeRight(t *testing.T) {
	var g gauge
	for want, signals := range map[string][]shedder.Signal{
		"shedder: Signals[0].Name must not be empty":                          {{Read: g.read}},
		"shedder: Signals[0].Read must not be nil (x)":                        {{Name: "x"}},
		"shedder: Signals[0].Threshold must be finite, got NaN (x)":           {g.signal("x", math.NaN())},
		"shedder: Signals[0].Threshold must be finite, got +Inf (x)":          {g.signal("x", math.Inf(1))},
		`shedder: Signals[1].Name must be unique, got "x"`:                    {g.signal("x", 1), g.signal("x", 2)},
		`shedder: Signals[0].Name must not be that of a Reason, got "calm"`:   {g.signal("calm", 1)},
		`shedder: Signals[0].Name must not be that of a Reason, got "cpu"`:    {g.signal("cpu", 1)},
		`shedder: Signals[0].Name must not be that of a Reason, got "full"`:   {g.signal("full", 1)},
		`shedder: Signals[0].Name must not be that of a Reason, got "signal"`: {g.signal("signal", 1)},
	} {
		_, err := shedder.New(&shedder.Options{Signals: signals})
		require.EqualError(t, err, want)
	}
}

func TestThrottledIsTheShareOfPeriods(t *testing.T) {
	r := newRig(t, shedder.Options{})
	throttled := shedder.Throttled(&r.cpu, 0.5)
	value, err := throttled.Read(r.now)
	require.NoError(t, err)
	require.Zero(t, value, "there is no quota")
	r.cpu.throttled = 60 * time.Millisecond
	r.sleep(time.Second)
	value, err = throttled.Read(r.now)
	require.NoError(t, err)
	require.InDelta(t, 1, value, 0, "two of two")
	r.cpu.err = errors.New("gone")
	_, err = throttled.Read(r.now)
	require.ErrorIs(t, err, r.cpu.err)
}
