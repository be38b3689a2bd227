package stats

import (
	"runtime/metrics"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/race"
)

func TestSensorsDoNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector allocates on its own account; run without -race")
	}
	cpu, err := NewCPU(&CPUOptions{Read: func() (float64, error) { return 0.5, nil }})
	require.NoError(t, err)
	hist := &metrics.Float64Histogram{Counts: make([]uint64, 200), Buckets: make([]float64, 201)}
	fake, err := NewSchedLatency(&SchedLatencyOptions{Read: func() (*metrics.Float64Histogram, error) { return hist, nil }})
	require.NoError(t, err)
	sched, err := NewSchedLatency(nil)
	require.NoError(t, err)
	now := time.Now()
	cpu.Sample(now)
	fake.Sample(now)
	sched.Sample(now)

	require.Zero(t, testing.AllocsPerRun(100, func() {
		cpu.Sample(now)
		cpu.Sample(now)
		fake.Sample(now)
		fake.Sample(now)
	}), "no reading due")
	for name, refresh := range map[string]func(time.Time){
		"CPU":                      func(now time.Time) { cpu.Sample(now) },
		"SchedLatency":             func(now time.Time) { fake.Sample(now) },
		"SchedLatency, Go runtime": func(now time.Time) { sched.Sample(now) },
	} {
		require.Equal(t, 1.0, testing.AllocsPerRun(100, func() {
			now = now.Add(time.Second)
			refresh(now)
		}), "%s: a reading makes the sample that it publishes, and nothing else", name)
	}
}
