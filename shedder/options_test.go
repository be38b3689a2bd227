package shedder_test

import (
	"bytes"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
)

func TestOptionsThatCannotBeRight(t *testing.T) {
	tests := []struct {
		o    shedder.Options
		want string
	}{
		{shedder.Options{CPUThreshold: 1.5}, "shedder: CPUThreshold must be in (0, 1] or Off, got 1.5"},
		{shedder.Options{CPUThreshold: math.NaN()}, "shedder: CPUThreshold must be in (0, 1] or Off, got NaN"},
		{shedder.Options{CPUThreshold: -0.5}, "shedder: CPUThreshold must be in (0, 1] or Off, got -0.5"},
		{shedder.Options{Streak: -3}, "shedder: Streak must be at least 1 or Off, got -3"},
		{shedder.Options{MaxDelay: time.Microsecond}, "shedder: MaxDelay must be at least 1ms or Off, got 1µs"},
		{shedder.Options{SLO: time.Millisecond}, "shedder: SLO must be at least 10ms, or 0 for none, got 1ms"},
		{shedder.Options{SLO: -time.Second}, "shedder: SLO must be at least 10ms, or 0 for none, got -1s"},
		{shedder.Options{SLO: time.Second, MaxDelay: time.Second}, "shedder: MaxDelay must be 0 if SLO is set, got 1s and an SLO of 1s"},
		{shedder.Options{CoolDown: -time.Second}, "shedder: CoolDown must not be negative, got -1s"},
		{shedder.Options{Buckets: -1}, "shedder: Buckets must be at least 1, got -1"},
		{shedder.Options{Window: time.Millisecond}, "shedder: Window must be at least 1ms for each of 50 Buckets, got 1ms"},
		{shedder.Options{Window: -time.Second}, "shedder: Window must be at least 1ms for each of 50 Buckets, got -1s"},
		{shedder.Options{MinLimit: -2}, "shedder: MinLimit must be at least 1, got -2"},
		{shedder.Options{MinLimit: 10, MaxLimit: 5}, "shedder: MaxLimit must be at least MinLimit, which is 10, got 5"},
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

func TestDefaults(t *testing.T) {
	r := newRig(t, shedder.Options{})
	o := r.shed.Options()
	require.InDelta(t, 0.9, o.CPUThreshold, 0)
	require.Equal(t, 4, o.Streak)
	require.Equal(t, 100*time.Millisecond, o.MaxDelay)
	require.Equal(t, time.Second, o.CoolDown)
	require.Equal(t, 5*time.Second, o.Window)
	require.Equal(t, 50, o.Buckets)
}

func TestTuneWhileRunning(t *testing.T) {
	r := newRig(t, shedder.Options{})
	r.cpu.usage, r.cpu.smoothed = 0.7, 0.7
	require.False(t, r.look().Overloaded)
	o := r.shed.Options()
	o.CPUThreshold, o.MinLimit, o.Window, o.Buckets = 0.6, 7, 2*time.Second, 20
	require.NoError(t, r.shed.Tune(o))
	r.sleep(20 * time.Millisecond)
	require.True(t, r.look().Overloaded)
	require.Equal(t, 7, r.enterMany(100))
	r.sleep(5 * time.Millisecond)
	r.leave(7, 5*time.Millisecond, spillway.Success)
	r.sleep(100 * time.Millisecond)
	require.InDelta(t, 70, r.look().MaxPass, 1e-9, "the new window counts")
	o.CPUThreshold = 0.9
	require.NoError(t, r.shed.Tune(o))
	for range 120 {
		r.sleep(20 * time.Millisecond)
		r.look()
	}
	require.False(t, r.shed.Stats().Overloaded)
}

func TestLogsChangesOnly(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, shedder.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	r.hot()
	for range 200 {
		r.enterMany(10)
		r.sleep(20 * time.Millisecond)
	}
	r.cool()
	for range 200 {
		r.sleep(20 * time.Millisecond)
		r.look()
	}
	require.Equal(t, 2, bytes.Count(log.Bytes(), []byte("\n")), log.String())
	require.Contains(t, log.String(), `level=WARN msg="shedder: overloaded" reason=cpu`)
	require.Contains(t, log.String(), `level=INFO msg="shedder: calm again"`)
}
