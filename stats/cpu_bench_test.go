package stats_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/stats"
)

func BenchmarkCPUSample(b *testing.B) {
	c := newCPU(b, &stats.CPUOptions{Source: newFakeCPU(1)})
	c.Sample(epoch)
	now := epoch.Add(time.Millisecond)
	b.Run("Value", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = c.Sample(now)
		}
	})
	b.Run("RealTime", func(b *testing.B) { // with a monotonic reading
		c := newCPU(b, &stats.CPUOptions{Source: newFakeCPU(1), Interval: time.Hour})
		now := time.Now()
		c.Sample(now)
		b.ReportAllocs()
		for b.Loop() {
			_ = c.Sample(now)
		}
	})
	b.Run("Parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_ = c.Sample(now)
			}
		})
	})
}

// BenchmarkCPURefresh is what the one caller pays whose turn it is to read, once per interval.
func BenchmarkCPURefresh(b *testing.B) {
	for name, source := range map[string]stats.CPUSource{
		"Auto": stats.AutoCPU(), "Cgroup": stats.CgroupCPU(), "Host": stats.HostCPU(), "Process": stats.ProcessCPU(),
	} {
		b.Run(name, func(b *testing.B) {
			if _, err := source.ReadCPU(time.Now()); err != nil {
				b.Skipf("SKIPPED: %v", err)
			}
			c := newCPU(b, &stats.CPUOptions{Source: source, Interval: time.Millisecond})
			now := time.Now()
			b.ReportAllocs()
			for b.Loop() {
				// 250 ms at a time, so that limits are read again every eighth time as they are in real life.
				now = now.Add(beat)
				c.Sample(now)
			}
			require.NoError(b, c.Sample(now).Err)
		})
	}
}

func BenchmarkSchedSample(b *testing.B) {
	s, err := stats.NewSchedLatency(nil)
	require.NoError(b, err)
	now := time.Now()
	s.Sample(now)
	b.Run("Value", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = s.Sample(now)
		}
	})
	b.Run("Refresh", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			now = now.Add(schedBeat)
			_ = s.Sample(now)
		}
	})
}
