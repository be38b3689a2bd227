package shedder

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/stats"
)

// A quota stops the process for the part of a period that it leaves no CPU for, or for what the kernel counted if that is less.
func TestQuotaPauseIsExact(t *testing.T) {
	ms := time.Millisecond
	for name, c := range map[string]struct {
		sample  stats.CPUSample
		pause   time.Duration
		running float64
	}{
		"stopped nothing":           {stats.CPUSample{Span: time.Second, Periods: 10, Procs: 4, Limit: 1}, 0, 1},
		"uncounted":                 {stats.CPUSample{Span: time.Second, Periods: 10, ThrottledPeriods: 5, Procs: 4, Limit: 1}, 75 * ms, 0.25},
		"counted":                   {stats.CPUSample{Span: time.Second, Periods: 10, ThrottledPeriods: 5, Throttled: 150 * ms, Procs: 4, Limit: 1}, 30 * ms, 0.7},
		"counted on all processors": {stats.CPUSample{Span: time.Second, Periods: 10, ThrottledPeriods: 5, Throttled: time.Hour, Procs: 4, Limit: 1}, 75 * ms, 0.25},
		"hardly anything left":      {stats.CPUSample{Span: time.Second, Periods: 10, ThrottledPeriods: 5, Procs: 4, Limit: 0.04}, 99 * ms, leastRunning},
		"more than there is":        {stats.CPUSample{Span: time.Second, Periods: 10, ThrottledPeriods: 5, Procs: 4, Limit: 8}, 0, 1},
		"of a known period":         {stats.CPUSample{Span: 250 * ms, Period: 100 * ms, Periods: 2, ThrottledPeriods: 2, Procs: 4, Limit: 1}, 75 * ms, 0.25},
		"procs unknown":             {stats.CPUSample{Span: time.Second, Periods: 10, ThrottledPeriods: 5, Limit: 0.25}, 75 * ms, 0.25},
		"no periods":                {stats.CPUSample{Span: 100 * ms, ThrottledPeriods: 1, Procs: 4, Limit: 2}, 50 * ms, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			pause, running := quotaPause(&c.sample)
			require.Equal(t, c.pause, pause)
			require.InDelta(t, c.running, running, 1e-9)
		})
	}
}
