package waited

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The bounds of a bucket are those that the documentation of stats.Distribution gives.
func TestBucket(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		v := math.Exp(r.Float64()*40 - 20)
		i := bucket(v)
		require.LessOrEqual(t, v, math.Exp2(float64(i)/perDouble)*(1+1e-12))
		require.Greater(t, v, math.Exp2(float64(i-1)/perDouble)*(1-1e-12))
	}
	for e := -20; e <= 12; e++ {
		require.Equal(t, e*perDouble, bucket(math.Exp2(float64(e))), "a power of two belongs to the bucket that ends there")
		require.Equal(t, e*perDouble+1, bucket(math.Nextafter(math.Exp2(float64(e)), 1e9)))
	}
}

func TestRecorder(t *testing.T) {
	var r Recorder
	empty := r.Value()
	require.Zero(t, empty.Count)
	require.Empty(t, empty.Counts)
	for _, d := range []time.Duration{-1, 0, 1, time.Second, time.Second, 2 * time.Second, 10 * time.Hour} {
		r.Record(d)
	}
	v := r.Value()
	require.Equal(t, uint64(7), v.Count)
	require.Equal(t, uint64(2), v.Zero)
	require.InDelta(t, 36004, v.Sum, 1e-6)
	require.Equal(t, lowest, v.First, "a nanosecond counts in the first bucket")
	require.Equal(t, uint64(1), v.Counts[0])
	require.Equal(t, uint64(2), v.Counts[0-lowest], "a second")
	require.Equal(t, uint64(1), v.Counts[perDouble-lowest])
	require.Equal(t, uint64(1), v.Counts[highest-lowest], "ten hours count in the last bucket")
	require.Len(t, v.Counts, highest-lowest+1)
	v.Counts[0] = 99
	require.Equal(t, uint64(1), r.Value().Counts[0], "a value is a copy")

	var s Recorder
	s.Record(3 * time.Millisecond)
	require.Equal(t, []uint64{1}, s.Value().Counts)
}
