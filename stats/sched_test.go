package stats_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"runtime/metrics"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/stats"
)

// fakeSched is a cumulative histogram that a test fills.
type fakeSched struct {
	hist metrics.Float64Histogram
	err  error
}

// newFakeSched has buckets below 0, from 0 to 1 ms, to 2 ms, to 4 ms and above.
func newFakeSched() *fakeSched {
	bounds := []float64{math.Inf(-1), 0, 0.001, 0.002, 0.004, math.Inf(1)}
	return &fakeSched{hist: metrics.Float64Histogram{Counts: make([]uint64, 5), Buckets: bounds}}
}

func (f *fakeSched) read() (*metrics.Float64Histogram, error) { return &f.hist, f.err }

func (f *fakeSched) add(counts ...uint64) {
	for i, n := range counts {
		f.hist.Counts[i] += n
	}
}

func newSched(t testing.TB, f *fakeSched) *stats.Sensor[stats.SchedSample] {
	t.Helper()
	s, err := stats.NewSchedLatency(&stats.SchedLatencyOptions{Read: f.read})
	require.NoError(t, err)
	return s
}

const schedBeat = 100 * time.Millisecond

func TestSchedLatencyTellsTheDifference(t *testing.T) {
	f := newFakeSched()
	f.add(0, 0, 0, 0, 1e6) // long before
	s := newSched(t, f)
	require.ErrorIs(t, s.Sample(epoch).Err, stats.ErrNoReading)

	f.add(0, 50, 49, 1, 0)
	got := s.Sample(epoch.Add(schedBeat))
	require.NoError(t, got.Err)
	require.Equal(t, uint64(100), got.Count)
	require.Equal(t, 2*time.Millisecond, got.Value, "99 of 100 are below")
	require.Equal(t, time.Millisecond, got.Median)
	require.InDelta(t, float64(50*500+49*1500+3000)/100, float64(got.Mean.Microseconds()), 1)
	require.Equal(t, epoch.Add(schedBeat), got.Time)
	require.Equal(t, schedBeat, got.Span)

	require.Equal(t, s.Sample(epoch.Add(schedBeat)), s.Sample(epoch.Add(2*schedBeat-1)), "one reading per interval")

	got = s.Sample(epoch.Add(2 * schedBeat))
	require.NoError(t, got.Err)
	require.Zero(t, got.Count, "an empty interval says so")
	require.Zero(t, got.Value)
	require.Zero(t, got.Mean)
	require.Equal(t, uint64(2), got.Samples)
}

func TestSchedLatencyInterpolates(t *testing.T) {
	f := newFakeSched()
	s := newSched(t, f)
	s.Sample(epoch)
	f.add(0, 0, 0, 100)
	got := s.Sample(epoch.Add(schedBeat))
	require.InDelta(t, 3980, float64(got.Value.Microseconds()), 1)
	require.InDelta(t, 3000, float64(got.Median.Microseconds()), 1)
}

func TestSchedLatencyOpenEnds(t *testing.T) {
	f := newFakeSched()
	s := newSched(t, f)
	s.Sample(epoch)
	f.add(3)
	require.Zero(t, s.Sample(epoch.Add(schedBeat)).Value)
	f.add(0, 0, 0, 0, 3)
	got := s.Sample(epoch.Add(2 * schedBeat))
	require.Equal(t, 4*time.Millisecond, got.Value, "at least")
	require.Equal(t, 4*time.Millisecond, got.Mean)
}

func TestSchedLatencyFailureIsUnknown(t *testing.T) {
	f := newFakeSched()
	s := newSched(t, f)
	s.Sample(epoch)
	f.add(0, 0, 10)
	good := s.Sample(epoch.Add(schedBeat))
	f.err = errors.New("gone")
	got := s.Sample(epoch.Add(2 * schedBeat))
	require.ErrorIs(t, got.Err, f.err)
	require.Equal(t, uint64(1), got.Errors)
	require.Equal(t, good.Value, got.Value)
	require.Equal(t, good.Time, got.Time)

	f.err = nil
	f.add(0, 0, 0, 7)
	got = s.Sample(epoch.Add(3 * schedBeat))
	require.NoError(t, got.Err)
	require.Equal(t, uint64(7), got.Count)
	require.Equal(t, 2*schedBeat, got.Span)

	f.hist.Counts = make([]uint64, 5) // began anew
	f.add(0, 1)
	reset := s.Sample(epoch.Add(4 * schedBeat))
	require.NoError(t, reset.Err)
	require.Equal(t, got.Time, reset.Time, "nothing to compare with")
	require.Equal(t, got.Count, reset.Count)

	f.hist.Buckets = f.hist.Buckets[:3]
	require.ErrorContains(t, s.Sample(epoch.Add(5*schedBeat)).Err, "need 6 bounds, got 3")
}

func TestNewSchedLatencyRejectsBadOptions(t *testing.T) {
	for want, o := range map[string]stats.SchedLatencyOptions{
		"stats: SchedLatency: Interval must be at least 1ms, got -1s":                {Interval: -time.Second},
		"stats: SchedLatency: Quantile must be more than 0 and less than 1, got 1":   {Quantile: 1},
		"stats: SchedLatency: Quantile must be more than 0 and less than 1, got -1":  {Quantile: -1},
		"stats: SchedLatency: Quantile must be more than 0 and less than 1, got NaN": {Quantile: math.NaN()},
	} {
		s, err := stats.NewSchedLatency(&o)
		require.EqualError(t, err, want)
		require.Nil(t, s)
	}
}

// TestSchedLatencyAgainstNaive compares with quantiles of the values themselves: each must fall into the same bucket.
func TestSchedLatencyAgainstNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 11))
	bounds := []float64{0}
	for b := 1e-6; b < 10; b *= 1.25 {
		bounds = append(bounds, b)
	}
	f := &fakeSched{hist: metrics.Float64Histogram{Counts: make([]uint64, len(bounds)-1), Buckets: bounds}}
	s, err := stats.NewSchedLatency(&stats.SchedLatencyOptions{Read: f.read, Quantile: 0.9})
	require.NoError(t, err)
	s.Sample(epoch)
	bucketOf := func(v float64) int {
		i, found := slices.BinarySearch(bounds, v)
		if !found {
			i--
		}
		return i
	}
	for round := range 300 {
		values := make([]float64, rng.IntN(200))
		sum := 0.0
		for i := range values {
			values[i] = math.Exp(rng.Float64()*15 - 13.5)
			f.hist.Counts[bucketOf(values[i])]++
			sum += values[i]
		}
		got := s.Sample(epoch.Add(time.Duration(round+1) * schedBeat))
		require.EqualValues(t, len(values), got.Count)
		if len(values) == 0 {
			continue
		}
		slices.Sort(values)
		naive := values[int(math.Ceil(0.9*float64(len(values))))-1]
		i := bucketOf(naive)
		// A nanosecond either way: the bounds are no whole nanoseconds.
		require.GreaterOrEqual(t, got.Value.Seconds(), bounds[i]-1e-9)
		require.LessOrEqual(t, got.Value.Seconds(), bounds[i+1]+1e-9)
		require.LessOrEqual(t, got.Median, got.Value)
		require.InEpsilon(t, sum/float64(len(values)), got.Mean.Seconds(), 0.13)
	}
}
