package stats

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Of several levels a sample tells of the one that was stopped in most periods, by how much more than at base.
func TestThrottledIsThatOfTheTightestLevel(t *testing.T) {
	level := func(periods, throttled uint64, stopped time.Duration) *CPULevel {
		return &CPULevel{Period: time.Second, Periods: periods, ThrottledPeriods: throttled, Throttled: stopped}
	}
	base := level(100, 40, time.Second)
	var s CPUSample
	s.addThrottled(level(100, 40, time.Second), base) // nothing happened
	require.Equal(t, CPUSample{Period: time.Second}, s)
	s.addThrottled(level(110, 43, 1300*time.Millisecond), base)
	want := CPUSample{Period: time.Second, Periods: 10, ThrottledPeriods: 3, Throttled: 300 * time.Millisecond}
	require.Equal(t, want, s)
	for _, l := range []*CPULevel{
		level(120, 43, 2*time.Second),                                                              // no tighter
		level(99, 50, 2*time.Second), level(120, 39, 2*time.Second), level(120, 50, time.Second-1), // counted anew
	} {
		s.addThrottled(l, base)
		require.Equal(t, want, s)
	}
	s.addThrottled(level(100, 44, time.Second), base)
	require.Equal(t, CPUSample{Period: time.Second, ThrottledPeriods: 4}, s)

	var first CPUSample
	first.addThrottled(level(110, 40, time.Second), base)
	require.Equal(t, CPUSample{Period: time.Second, Periods: 10}, first, "periods in which nothing was stopped")
}

func TestOptionsOnTheEdge(t *testing.T) {
	_, err := NewSchedLatency(&SchedLatencyOptions{Interval: time.Millisecond})
	require.NoError(t, err)
	_, err = NewGC(&GCOptions{Near: 1, Interval: time.Millisecond})
	require.NoError(t, err)
}
