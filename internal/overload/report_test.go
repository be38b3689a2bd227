package overload

import (
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/stats"
)

func TestReports(t *testing.T) {
	reads := 0
	metrics := []stats.Metric{}
	r := NewReporter(func() iter.Seq[stats.Metric] {
		return func(yield func(stats.Metric) bool) {
			reads++
			for _, m := range metrics {
				if !yield(m) {
					return
				}
			}
		}
	})
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	parse := func(value []string) Advice {
		require.Len(t, value, 1)
		a, ok := Parse(value[0])
		require.True(t, ok, "%q", value)
		require.Len(t, a.Src, 8)
		return a
	}
	calm := parse(r.Report(now).Value)
	require.Zero(t, calm.Reduce)
	require.Equal(t, 10*time.Second, calm.Valid)
	require.Same(t, r.Report(now), r.Report(now.Add(99*time.Millisecond)), "once per 100 ms")
	require.Equal(t, 1, reads)
	with := 0
	for range 16_000 {
		if r.Sometimes(now) != nil {
			with++
		}
	}
	require.InDelta(t, 1000, with, 200, "one in 16")

	shadow := []stats.Label{{Name: "shadow", Value: "0"}}
	metrics = []stats.Metric{
		{Name: "spillway.shedder.hold_back_at", Value: 4, Labels: shadow}, {Name: "spillway.shedder.hold_back", Value: 0.9, Labels: shadow},
		{Name: "spillway.shedder.hold_back_at", Value: -4}, {Name: "spillway.shedder.hold_back", Value: 0.9},
		{Name: "spillway.shedder.hold_back_at", Value: -1}, {Name: "spillway.shedder.hold_back", Value: 0.4},
		{Name: "spillway.shedder.hold_back_at", Value: 0}, {Name: "spillway.shedder.hold_back", Value: 0},
	}
	now = now.Add(100 * time.Millisecond)
	busy := parse(r.Report(now).Value)
	require.Equal(t, Advice{Level: -1, Reduce: 0.4, Valid: 2 * time.Second, Seq: calm.Seq + 1, Src: calm.Src}, busy)
	require.Zero(t, testing.AllocsPerRun(100, func() { r.Report(now); r.Sometimes(now) }))

	metrics = nil
	for range 99 {
		now = now.Add(100 * time.Millisecond)
		all := parse(r.Sometimes(now).Value)
		require.Zero(t, all.Reduce, "everyone hears the all-clear")
		require.Equal(t, 10*time.Second, all.Valid)
	}
	now = now.Add(100 * time.Millisecond)
	with = 0
	for range 1600 {
		if r.Sometimes(now) != nil {
			with++
		}
	}
	require.InDelta(t, 100, with, 60, "and then it is as before")
}
