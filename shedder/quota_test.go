package shedder

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/stats"
)

// A quota stops the process for the part of a period that it leaves no CPU for, or for what the kernel counted if that is less.
func TestQuotaPauseIsExact(t *testing.T) {
	ms := time.Millisecond
	procs := float64(runtime.GOMAXPROCS(0))
	for name, c := range map[string]struct {
		sample  stats.CPUSample
		pause   time.Duration
		running float64
	}{
		"stopped nothing":           {stats.CPUSample{Span: time.Second, Periods: 10, Limit: procs / 4}, 0, 1},
		"uncounted":                 {stats.CPUSample{Span: time.Second, Periods: 10, ThrottledPeriods: 5, Limit: procs / 4}, 75 * ms, 0.25},
		"counted":                   {stats.CPUSample{Span: time.Second, Periods: 10, ThrottledPeriods: 5, Throttled: 150 * ms, Limit: procs / 4}, 30 * ms, 0.7},
		"counted on all processors": {stats.CPUSample{Span: time.Second, Periods: 10, ThrottledPeriods: 5, Throttled: time.Hour, Limit: procs / 4}, 75 * ms, 0.25},
		"hardly anything left":      {stats.CPUSample{Span: time.Second, Periods: 10, ThrottledPeriods: 5, Limit: procs / 100}, 99 * ms, leastRunning},
		"more than there is":        {stats.CPUSample{Span: time.Second, Periods: 10, ThrottledPeriods: 5, Limit: 2 * procs}, 0, 1},
		"no periods":                {stats.CPUSample{Span: 100 * ms, ThrottledPeriods: 1, Limit: procs / 2}, 50 * ms, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			pause, running := quotaPause(&c.sample)
			require.Equal(t, c.pause, pause)
			require.InDelta(t, c.running, running, 1e-9)
		})
	}
}
