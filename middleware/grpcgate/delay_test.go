package grpcgate

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

func TestDelaySteps(t *testing.T) {
	require.True(t, slices.IsSorted(delaySteps))
	require.Equal(t, int64(leastDelay), delaySteps[0])
	require.Equal(t, int64(mostPrepared), delaySteps[len(delaySteps)-1])
	require.Less(t, len(delaySteps), 400)
	for i, ms := range delaySteps[1:] {
		require.Greater(t, ms, delaySteps[i])
		require.LessOrEqual(t, float64(ms), max(1.05*float64(delaySteps[i]), float64(delaySteps[i]+1)))
	}
}

func TestDelayAt(t *testing.T) {
	const almost = 0.999999999
	for _, c := range []struct{ d, least, most time.Duration }{
		{0, time.Second, 3 * time.Second},
		{-1, time.Second, 3 * time.Second},
		{1, 1, 1},
		{time.Second, time.Second, 1250 * time.Millisecond},
		{48 * time.Hour, 48 * time.Hour, 54 * time.Hour},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64},
	} {
		require.Equal(t, c.least, delayAt(c.d, 0), c.d)
		require.InDelta(t, float64(c.most), float64(delayAt(c.d, almost)), float64(c.most)*1e-6, c.d)
	}
}

func TestAnswersArePreparedOnce(t *testing.T) {
	a := newAnswers(codes.ResourceExhausted, "text")
	require.Same(t, a.of(100*time.Millisecond), a.of(99*time.Millisecond))
	require.NotSame(t, a.of(100*time.Millisecond), a.of(time.Second))
	long := a.of(1000 * time.Hour)
	require.Equal(t, []string{"2147483647"}, long.trailer[pushbackKey], "the greatest that the trailer can say")
}

// FuzzAnswer checks that no client is told to come back too early, nor much too late.
func FuzzAnswer(f *testing.F) {
	for _, d := range []int64{0, 1, int64(time.Millisecond), int64(time.Hour), -5, math.MaxInt64} {
		f.Add(d)
	}
	a := newAnswers(codes.ResourceExhausted, "text")
	f.Fuzz(func(t *testing.T, d int64) {
		delay := time.Duration(d)
		i, ok := delayStep(delay)
		if ok {
			step := time.Duration(delaySteps[i]) * time.Millisecond
			require.GreaterOrEqual(t, step, delay)
			require.LessOrEqual(t, float64(step), max(1.051*float64(delay), float64(leastDelay*time.Millisecond))+float64(time.Millisecond))
		} else {
			require.Greater(t, delay, mostPrepared*time.Millisecond)
		}
		require.GreaterOrEqual(t, spreadDelay(delay), delay)
		require.Len(t, a.of(spreadDelay(delay)).trailer[pushbackKey], 1)
	})
}
