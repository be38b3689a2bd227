package stats_test

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/stats"
)

const schedChildEnv = "SPILLWAY_STATS_TEST_SCHED"

// TestSchedLatencySeesSaturation runs TestSchedChild in a process of its own, so that nothing else is on its one
// processor.
func TestSchedLatencySeesSaturation(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSchedChild$", "-test.v")
	cmd.Env = append(os.Environ(), schedChildEnv+"=1", "GOMAXPROCS=1", "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", strings.TrimSpace(string(out)))
	require.Contains(t, string(out), "saturated")
}

// TestSchedChild keeps one processor idle, then busy with 20 goroutines that each compute for a millisecond at a time, so
// that each waits for the 19 others. It runs in real time: only the real scheduler can say how long that takes.
func TestSchedChild(t *testing.T) {
	if os.Getenv(schedChildEnv) == "" {
		return // not a child
	}
	s, err := stats.NewSchedLatency(&stats.SchedLatencyOptions{Interval: 50 * time.Millisecond})
	require.NoError(t, err)
	watch := func(samples uint64) (least, most stats.SchedSample) {
		s.Sample(time.Now())
		// Each sample covers real time. Sleeping leaves the processor to the load that is measured.
		for from := s.Sample(time.Now()).Samples; ; time.Sleep(time.Millisecond) {
			got := s.Sample(time.Now())
			if got.Samples > from+1 && got.Count > 0 { // the first may be half of what was before
				if least.Count == 0 || got.Value < least.Value {
					least = got
				}
				if got.Value > most.Value {
					most = got
				}
			}
			if got.Samples >= from+samples {
				return least, most
			}
		}
	}
	idle, _ := watch(8)
	t.Logf("idle: p99 %v, median %v, mean %v of %d", idle.Value, idle.Median, idle.Mean, idle.Count)

	var stop atomic.Bool
	for range 20 {
		go func() {
			for !stop.Load() {
				for begin := time.Now(); time.Since(begin) < time.Millisecond; {
				}
				runtime.Gosched()
			}
		}()
	}
	_, busy := watch(8)
	stop.Store(true)
	t.Logf("saturated: p99 %v, median %v, mean %v of %d", busy.Value, busy.Median, busy.Mean, busy.Count)
	require.Greater(t, busy.Value, 5*time.Millisecond)
	require.Greater(t, busy.Value, 10*idle.Value)
}
