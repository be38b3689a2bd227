package stats_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/stats"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// fakeCPU is a source whose counters a test sets.
type fakeCPU struct {
	mu    sync.Mutex
	r     stats.CPUReading
	err   error
	reads int
}

func newFakeCPU(limit float64) *fakeCPU {
	return &fakeCPU{r: stats.CPUReading{Source: "fake", Levels: []stats.CPULevel{{Name: "/a", Limit: limit}}}}
}

func (f *fakeCPU) ReadCPU(time.Time) (stats.CPUReading, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	r := f.r
	r.Levels = append([]stats.CPULevel(nil), f.r.Levels...)
	return r, f.err
}

func (f *fakeCPU) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

// use adds used CPU time to the first level.
func (f *fakeCPU) use(d time.Duration) { f.r.Levels[0].Used += d }

func newCPU(t testing.TB, o *stats.CPUOptions) *stats.Sensor[stats.CPUSample] {
	t.Helper()
	c, err := stats.NewCPU(o)
	require.NoError(t, err)
	return c
}

const beat = 250 * time.Millisecond

func TestCPUUsageIsFractionOfLimit(t *testing.T) {
	src := newFakeCPU(0.5)
	c := newCPU(t, &stats.CPUOptions{Source: src})
	now := epoch
	s := c.Sample(now)
	require.ErrorIs(t, s.Err, stats.ErrNoReading, "one reading has nothing to compare with")
	require.Error(t, s.Err)
	require.Equal(t, 0.5, s.Limit, "the limit is known at once")

	src.use(beat * 45 / 100)
	now = now.Add(beat)
	s = c.Sample(now)
	require.NoError(t, s.Err)
	require.NoError(t, s.Err)
	require.InDelta(t, 0.9, s.Usage, 1e-9)
	require.Equal(t, s.Usage, s.Smoothed, "the first sample seeds the average")
	require.Equal(t, "fake", s.Source)
	require.Equal(t, "/a", s.Level)
	require.Equal(t, beat, s.Span)
	require.Equal(t, uint64(1), s.Samples)
	require.Equal(t, now, s.Time)
	require.Equal(t, now, s.Time)
}

func TestCPUReadsAtMostOncePerInterval(t *testing.T) {
	src := newFakeCPU(1)
	c := newCPU(t, &stats.CPUOptions{Source: src})
	for i := range 1000 {
		c.Sample(epoch.Add(time.Duration(i) * time.Millisecond))
	}
	require.Equal(t, 4, src.reads, "at 0, 250, 500 and 750 ms")
	require.Equal(t, c.Sample(epoch.Add(time.Second-time.Nanosecond)), c.Sample(epoch))
}

func TestCPUStepResponse(t *testing.T) {
	src := newFakeCPU(2)
	c := newCPU(t, &stats.CPUOptions{Source: src})
	now := epoch
	step := func(usage float64) stats.CPUSample {
		now = now.Add(beat)
		src.use(time.Duration(usage * 2 * float64(beat)))
		return c.Sample(now)
	}
	c.Sample(now)
	require.Zero(t, step(0).Smoothed)
	samples := 0
	for s := (stats.CPUSample{}); s.Smoothed <= 0.9; samples++ {
		s = step(1)
		require.InDelta(t, 1, s.Usage, 1e-9, "raw follows at once")
	}
	require.Equal(t, 45, samples, "11.25 s after the step")
	for range 200 {
		step(0.92)
	}
	require.InDelta(t, 0.92, step(0.92).Smoothed, 1e-3, "a steady load of 0.92 is above 0.9, not stuck below it")
	for range 400 {
		step(0)
	}
	require.InDelta(t, 0, step(0).Smoothed, 1e-6, "idle decays to 0")
}

func TestCPUSmoothingDoesNotDependOnWhoAsks(t *testing.T) {
	often, seldom := newFakeCPU(1), newFakeCPU(1)
	a := newCPU(t, &stats.CPUOptions{Source: often})
	b := newCPU(t, &stats.CPUOptions{Source: seldom})
	for i := range 201 { // the load is constant from the second on
		now := epoch.Add(time.Duration(i) * beat)
		often.use(beat * 3 / 10)
		seldom.use(beat * 3 / 10)
		if i >= 2 {
			often.use(beat / 2)
			seldom.use(beat / 2)
		}
		a.Sample(now)
		if i < 2 || (i-1)%7 == 0 {
			b.Sample(now)
		}
		if i > 1 && (i-1)%7 == 0 {
			require.InDelta(t, a.Sample(now).Smoothed, b.Sample(now).Smoothed, 1e-9, "at %d", i)
			require.Equal(t, 7*beat, b.Sample(now).Span)
		}
	}
}

func TestCPUIdleMinuteDoesNotHideABurst(t *testing.T) {
	src := newFakeCPU(1)
	c := newCPU(t, &stats.CPUOptions{Source: src})
	now := epoch
	c.Sample(now)
	for range 100 { // hot
		now = now.Add(beat)
		src.use(beat)
		c.Sample(now)
	}
	require.InDelta(t, 1, c.Sample(now).Smoothed, 1e-9)

	now = now.Add(time.Minute) // nobody asked, nothing ran
	s := c.Sample(now)
	require.Zero(t, s.Usage)
	require.Less(t, s.Smoothed, 1e-5, "the heat of a minute ago is gone")
	require.Equal(t, time.Minute, s.Span)

	now = now.Add(beat)
	src.use(beat)
	require.InDelta(t, 1, c.Sample(now).Usage, 1e-9, "the burst shows one interval later")
}

func TestCPULongGapOfHardWorkCounts(t *testing.T) {
	src := newFakeCPU(1)
	c := newCPU(t, &stats.CPUOptions{Source: src})
	c.Sample(epoch)
	c.Sample(epoch.Add(beat))
	src.use(10 * time.Second) // one request that computes, and nobody else who asks
	s := c.Sample(epoch.Add(beat + 10*time.Second))
	require.InDelta(t, 1, s.Usage, 1e-9)
	require.Greater(t, s.Smoothed, 0.85, "as 40 samples of 1 would have made it")
}
