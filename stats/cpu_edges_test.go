package stats_test

import (
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/stats"
)

func TestCPUFailureIsUnknownNotZero(t *testing.T) {
	src := newFakeCPU(1)
	c := newCPU(t, &stats.CPUOptions{Source: src})
	c.Sample(epoch)
	src.use(beat * 8 / 10)
	good := c.Sample(epoch.Add(beat))

	src.err = errors.New("gone")
	src.use(beat * 2 / 10)
	s := c.Sample(epoch.Add(2 * beat))
	require.ErrorIs(t, s.Err, src.err)
	require.Error(t, s.Err)
	require.Equal(t, uint64(1), s.Errors)
	require.Equal(t, epoch.Add(beat), s.Time)
	s.Err, s.Errors = nil, 0
	requireSameUsage(t, good, s)

	src.err = nil
	src.use(beat * 4 / 10)
	s = c.Sample(epoch.Add(3 * beat))
	require.NoError(t, s.Err)
	require.InDelta(t, 0.3, s.Usage, 1e-9, "over both intervals")
	require.Equal(t, 2*beat, s.Span)
	require.Equal(t, uint64(1), s.Errors, "the count stays")
}

func requireSameUsage(t *testing.T, want, got stats.CPUSample) {
	t.Helper()
	require.Equal(t, want.Usage, got.Usage)
	require.Equal(t, want.Smoothed, got.Smoothed)
	require.Equal(t, want.Time, got.Time)
	require.Equal(t, want.Span, got.Span)
	require.Equal(t, want.Samples, got.Samples)
}

func TestCPUCounterBackwardsIsIgnored(t *testing.T) {
	src := newFakeCPU(1)
	c := newCPU(t, &stats.CPUOptions{Source: src})
	src.use(time.Hour)
	c.Sample(epoch)
	src.use(beat / 2)
	good := c.Sample(epoch.Add(beat))
	src.r.Levels[0].Used = 0 // a new container
	s := c.Sample(epoch.Add(2 * beat))
	require.NoError(t, s.Err)
	requireSameUsage(t, good, s)
	src.use(beat / 4)
	require.InDelta(t, 0.25, c.Sample(epoch.Add(3*beat)).Usage, 1e-9, "measured from the new start")
}

func TestCPUClampsAtOne(t *testing.T) {
	src := newFakeCPU(1)
	c := newCPU(t, &stats.CPUOptions{Source: src})
	c.Sample(epoch)
	src.use(3 * beat)
	s := c.Sample(epoch.Add(beat))
	require.Equal(t, 1.0, s.Usage)
	require.Equal(t, 1.0, s.Smoothed)
}

func TestCPUGreatestLevelCounts(t *testing.T) {
	src := newFakeCPU(2)
	src.r.Levels = append(src.r.Levels, stats.CPULevel{Name: "/", Limit: 1})
	c := newCPU(t, &stats.CPUOptions{Source: src})
	c.Sample(epoch)
	src.use(beat / 2)
	src.r.Levels[1].Used += beat * 9 / 10
	src.r.Levels[1].Periods += 3
	src.r.Levels[1].ThrottledPeriods += 2
	src.r.Levels[1].Throttled += time.Millisecond
	s := c.Sample(epoch.Add(beat))
	require.InDelta(t, 0.9, s.Usage, 1e-9)
	require.Equal(t, 1.0, s.Limit)
	require.Equal(t, "/", s.Level)
	require.Equal(t, uint64(3), s.Periods)
	require.Equal(t, uint64(2), s.ThrottledPeriods)
	require.Equal(t, time.Millisecond, s.Throttled)

	src.r.Levels = src.r.Levels[:1] // the parent's quota is lifted
	src.use(beat / 2)
	s = c.Sample(epoch.Add(2 * beat))
	require.InDelta(t, 0.25, s.Usage, 1e-9)
	require.Equal(t, 2.0, s.Limit)
	require.Zero(t, s.Periods)

	src.r.Levels = append(src.r.Levels, stats.CPULevel{Name: "/", Limit: 1, Used: time.Hour})
	s = c.Sample(epoch.Add(3 * beat))
	require.Zero(t, s.Usage, "a level that is new again has nothing to compare with")
}

func TestCPULiveResizeHalvesUsage(t *testing.T) {
	src := newFakeCPU(1)
	c := newCPU(t, &stats.CPUOptions{Source: src})
	c.Sample(epoch)
	src.use(beat * 8 / 10)
	require.InDelta(t, 0.8, c.Sample(epoch.Add(beat)).Usage, 1e-9)
	src.r.Levels[0].Limit = 2
	src.use(beat * 8 / 10)
	require.InDelta(t, 0.4, c.Sample(epoch.Add(2*beat)).Usage, 1e-9)
}

func TestCPUReadingsOwnTimeCounts(t *testing.T) {
	src := newFakeCPU(1)
	c := newCPU(t, &stats.CPUOptions{Source: src})
	src.r.At = epoch.Add(40 * time.Millisecond) // the reader had waited for a processor
	c.Sample(epoch)
	src.use(beat / 2)
	src.r.At = epoch.Add(40*time.Millisecond + beat)
	c.Sample(epoch.Add(beat))
	require.Equal(t, 1, src.reads, "due an interval after the counters were read")
	s := c.Sample(epoch.Add(40*time.Millisecond + beat))
	require.InDelta(t, 0.5, s.Usage, 1e-9)
	require.Equal(t, src.r.At, s.Time)
}

func TestTwoCPUsOnOneSourceDoNotDisturbEachOther(t *testing.T) {
	src := newFakeCPU(1)
	a := newCPU(t, &stats.CPUOptions{Source: src})
	b := newCPU(t, &stats.CPUOptions{Source: src, Interval: 10 * time.Millisecond})
	for i := range 100 {
		now := epoch.Add(time.Duration(i) * 10 * time.Millisecond)
		b.Sample(now)
		a.Sample(now)
		src.use(6 * time.Millisecond)
	}
	now := epoch.Add(time.Second)
	require.InDelta(t, 0.6, a.Sample(now).Usage, 1e-9)
	require.InDelta(t, 0.6, b.Sample(now).Usage, 1e-9)
	require.InDelta(t, 0.6, a.Sample(now).Smoothed, 1e-9)
}

func TestCPURead(t *testing.T) {
	usage, fail := 0.7, error(nil)
	c := newCPU(t, &stats.CPUOptions{Read: func() (float64, error) { return usage, fail }})
	s := c.Sample(epoch)
	require.NoError(t, s.Err, "a ready fraction needs no second reading")
	require.Equal(t, 0.7, s.Usage)
	require.Equal(t, 0.7, s.Smoothed)
	require.Equal(t, "func", s.Source)
	usage = 1.7
	require.Equal(t, 1.0, c.Sample(epoch.Add(beat)).Usage)
	require.InDelta(t, 0.715, c.Sample(epoch.Add(beat)).Smoothed, 1e-9)
	for i, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -0.1} {
		usage = bad
		s = c.Sample(epoch.Add(time.Duration(i+2) * beat))
		require.ErrorContains(t, s.Err, "usage must be finite")
		require.Equal(t, 1.0, s.Usage)
	}
	fail, usage = errors.New("no"), 0.5
	require.ErrorIs(t, c.Sample(epoch.Add(10*beat)).Err, fail)
}

func TestCPUTellsHowManyThreadsRunAtOnce(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	src := newFakeCPU(1)
	c := newCPU(t, &stats.CPUOptions{Source: src})
	c.Sample(epoch)
	require.Equal(t, 3, c.Sample(epoch.Add(beat)).Procs)
	src.r.Procs = 16
	require.Equal(t, 16, c.Sample(epoch.Add(2*beat)).Procs, "the source describes another machine")
	src.r.Procs = -1
	require.ErrorContains(t, c.Sample(epoch.Add(3*beat)).Err, "stats: fake: procs must be at least 0, got -1")
}

func TestCPURejectsBadReadings(t *testing.T) {
	for name, levels := range map[string][]stats.CPULevel{
		"no level": nil, "no limit": {{}}, "negative": {{Limit: -1}}, "NaN": {{Limit: math.NaN()}}, "Inf": {{Limit: math.Inf(1)}},
	} {
		src := newFakeCPU(1)
		src.r.Levels = levels
		s := newCPU(t, &stats.CPUOptions{Source: src}).Sample(epoch)
		require.ErrorContains(t, s.Err, "stats: fake: ", name)
		require.Equal(t, uint64(1), s.Errors, name)
	}
}

func TestNewCPURejectsBadOptions(t *testing.T) {
	for want, o := range map[string]stats.CPUOptions{
		"stats: CPU: Interval must be at least 1ms, got -1s":             {Interval: -time.Second},
		"stats: CPU: Interval must be at least 1ms, got 1µs":             {Interval: time.Microsecond},
		"stats: CPU: Beta must be more than 0 and less than 1, got 1":    {Beta: 1},
		"stats: CPU: Beta must be more than 0 and less than 1, got -0.5": {Beta: -0.5},
		"stats: CPU: Beta must be more than 0 and less than 1, got NaN":  {Beta: math.NaN()},
		"stats: CPU: Beta must be more than 0 and less than 1, got +Inf": {Beta: math.Inf(1)},
	} {
		c, err := stats.NewCPU(&o)
		require.EqualError(t, err, want)
		require.Nil(t, c)
	}
}

func TestCPUOthersDoNotWaitForTheReader(t *testing.T) {
	reading, goOn := make(chan struct{}), make(chan struct{})
	var reads atomic.Int32
	c := newCPU(t, &stats.CPUOptions{Read: func() (float64, error) {
		reads.Add(1)
		close(reading)
		<-goOn
		return 0.5, nil
	}})
	done := make(chan stats.CPUSample)
	go func() { done <- c.Sample(epoch) }()
	<-reading
	for range 100 {
		require.ErrorIs(t, c.Sample(epoch).Err, stats.ErrNoReading, "what was published last")
	}
	close(goOn)
	require.Equal(t, 0.5, (<-done).Usage)
	require.Equal(t, int32(1), reads.Load())
}

func TestCPUUsedUpQuotaIsFullUse(t *testing.T) {
	for _, test := range []struct {
		name               string
		used               time.Duration
		periods, throttled uint64
		want               float64
	}{
		{"all periods of the span", 41 * beat / 100, 3, 3, 1},
		{"as few as fit in", 41 * beat / 100, 2, 2, 1},
		{"one period left some", 41 * beat / 100, 3, 2, 0.82},
		{"then idle", 20 * beat / 100, 1, 1, 0.4},
		{"unknown", 41 * beat / 100, 0, 0, 0.82},
		{"backwards", 41 * beat / 100, math.MaxUint64 - 2, 3, 0.82},
	} {
		src := newFakeCPU(0.5)
		src.r.Levels[0].Period = 100 * time.Millisecond
		src.r.Levels[0].Periods = 7
		c := newCPU(t, &stats.CPUOptions{Source: src})
		c.Sample(epoch)
		src.use(test.used)
		src.r.Levels[0].Periods += test.periods
		src.r.Levels[0].ThrottledPeriods += test.throttled
		require.InDelta(t, test.want, c.Sample(epoch.Add(beat)).Usage, 1e-9, test.name)
	}

	src := newFakeCPU(0.5)
	src.r.Levels[0].Period = 100 * time.Millisecond
	c := newCPU(t, &stats.CPUOptions{Source: src, Interval: 10 * time.Millisecond})
	c.Sample(epoch)
	src.r.Levels[0].Periods++
	src.r.Levels[0].ThrottledPeriods++
	require.Zero(t, c.Sample(epoch.Add(10*time.Millisecond)).Usage, "a span shorter than a period says nothing about one")
}

func TestCPUHasOneSource(t *testing.T) {
	_, err := stats.NewCPU(&stats.CPUOptions{Source: stats.ProcessCPU(), Read: func() (float64, error) { return 0, nil }})
	require.ErrorContains(t, err, "stats: CPU: Read must be nil if Source is set, got both")
}
