package stats

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/race"
)

func newEWMA(t testing.TB, beta float64) *EWMA {
	t.Helper()
	e, err := NewEWMA(beta)
	require.NoError(t, err)
	return e
}

func TestEWMARejectsWhatCannotBe(t *testing.T) {
	for beta, text := range map[float64]string{-0.1: "-0.1", 1: "1", 2: "2", math.Inf(1): "+Inf", math.Inf(-1): "-Inf"} {
		e, err := NewEWMA(beta)
		require.EqualError(t, err, "stats: EWMA: beta must be at least 0 and less than 1, got "+text)
		require.Nil(t, e)
	}
	_, err := NewEWMA(math.NaN())
	require.EqualError(t, err, "stats: EWMA: beta must be at least 0 and less than 1, got NaN")
}

func TestEWMAIsSeededByItsFirstSample(t *testing.T) {
	e := newEWMA(t, 0.95)
	require.False(t, e.seeded())
	require.Zero(t, e.Value())
	require.Equal(t, 0.8, e.Update(0.8))
	require.True(t, e.seeded())
	require.Equal(t, 0.8, e.Value())
	require.InDelta(t, 0.76, e.Update(0), 1e-12)

	e = newEWMA(t, 0.5)
	require.Zero(t, e.Update(0))
	require.True(t, e.seeded(), "0 is a sample like any other")
	require.Equal(t, 0.5, e.Update(1))
}

func TestEWMAZeroHoldsTheLastSample(t *testing.T) {
	var e EWMA
	require.False(t, e.seeded())
	require.Zero(t, e.Value())
	e.Update(3)
	require.Equal(t, 7.0, e.Update(7))
}

// With a sample each 250 ms: how many until a step to 1 has passed 0.9.
func TestEWMAStepResponse(t *testing.T) {
	for _, c := range []struct {
		from  float64
		ticks int
	}{
		{0, 45},   // 11.25 s
		{0.5, 32}, // 8.0 s
	} {
		e := newEWMA(t, 0.95)
		e.Update(c.from)
		ticks := 1
		for e.Update(1) < 0.9 {
			ticks++
		}
		require.Equal(t, c.ticks, ticks, "from %v", c.from)
	}
}

func TestEWMAConstantInputStays(t *testing.T) {
	e := newEWMA(t, 0.95)
	for range 10000 {
		require.Equal(t, 0.92, e.Update(0.92))
	}
	e = newEWMA(t, 0.95)
	e.Update(0)
	for range 200 {
		e.Update(0.92)
	}
	require.Greater(t, e.Value(), 0.9, "a climb does not stick below the input")
}

func TestEWMAConstantInputStaysForAnyBeta(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 2000 {
		e, x := newEWMA(t, rng.Float64()), rng.NormFloat64()
		e.Update(x)
		require.Equal(t, x, e.Update(x), "beta %v", e.beta)
	}
}

func TestEWMADecaysToZero(t *testing.T) {
	e := newEWMA(t, 0.95)
	e.Update(1)
	for range 1000 {
		before := e.Value()
		require.Less(t, e.Update(0), before)
	}
	require.Less(t, e.Value(), 1e-20)
	require.GreaterOrEqual(t, e.Value(), 0.0)
}

func TestEWMAIgnoresWhatIsNotANumber(t *testing.T) {
	e := newEWMA(t, 0.9)
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		require.Zero(t, e.Update(x))
		require.False(t, e.seeded())
	}
	e.Update(2)
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		require.Equal(t, 2.0, e.Update(x))
	}
}

func TestEWMAHugeSamplesDoNotOverflow(t *testing.T) {
	e := newEWMA(t, 0.3)
	for _, x := range []float64{math.MaxFloat64, math.MaxFloat64, -math.MaxFloat64, -math.MaxFloat64, math.MaxFloat64} {
		require.False(t, math.IsInf(e.Update(x), 0))
	}
}

// modelEWMA weighs all samples at once instead of one after the other.
func modelEWMA(beta float64, xs []float64) float64 {
	mean := math.Pow(beta, float64(len(xs)-1)) * xs[0]
	for i, x := range xs[1:] {
		mean += (1 - beta) * math.Pow(beta, float64(len(xs)-2-i)) * x
	}
	return mean
}

func TestEWMAAgainstModel(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		beta := rng.Float64()
		e := newEWMA(t, beta)
		var xs []float64
		for range 100 {
			xs = append(xs, rng.NormFloat64()*100)
			require.InDelta(t, modelEWMA(beta, xs), e.Update(xs[len(xs)-1]), 1e-9)
			require.InDelta(t, modelEWMA(beta, xs), e.Value(), 1e-9)
		}
	}
}

func FuzzEWMA(f *testing.F) {
	f.Add(0.95, []byte{0, 0, 0, 0, 0, 0, 0xF0, 0x3F, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Add(0.0, []byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xEF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xEF, 0xFF})
	f.Add(0.5, []byte{0, 0, 0, 0, 0, 0, 0xF0, 0x7F, 1, 0, 0, 0, 0, 0, 0xF8, 0x7F})
	f.Fuzz(func(t *testing.T, beta float64, raw []byte) {
		e, err := NewEWMA(beta)
		if err != nil {
			require.False(t, beta >= 0 && beta < 1)
			return
		}
		least, most, seeded := math.Inf(1), math.Inf(-1), false
		for ; len(raw) >= 8; raw = raw[8:] {
			x, before := math.Float64frombits(binary.LittleEndian.Uint64(raw)), e.Value()
			after := e.Update(x)
			require.Equal(t, after, e.Value())
			if math.IsNaN(x) || math.IsInf(x, 0) {
				require.Equal(t, before, after)
				continue
			}
			if !seeded {
				require.Equal(t, x, after)
				before = x
			}
			least, most, seeded = min(least, x), max(most, x), true
			require.True(t, min(before, x) <= after && after <= max(before, x), "%v is not between %v and %v", after, before, x)
			require.True(t, least <= after && after <= most)
		}
		require.Equal(t, seeded, e.seeded())
	})
}

// With beta 0.5 and samples 1 after a seed of 0, the distance to 1 is a power of two that counts the updates: none may be lost.
func TestEWMAConcurrentUpdatesAreAllApplied(t *testing.T) {
	for range 100 {
		e := newEWMA(t, 0.5)
		e.Update(0)
		together(10, func(int) {
			for range 5 {
				e.Update(1)
			}
		})
		require.Equal(t, math.Ldexp(1, -50), 1-e.Value())
	}
}

func TestEWMAReadersSeeOnlyMeans(t *testing.T) {
	e := newEWMA(t, 0.9)
	e.Update(1)
	var stop atomic.Bool
	var readers sync.WaitGroup
	var wrong atomic.Int64
	for range 2 {
		readers.Go(func() {
			for !stop.Load() {
				if v := e.Value(); v < 1 || v > 2 || !e.seeded() {
					wrong.Add(1)
				}
			}
		})
	}
	together(4, func(i int) {
		for j := range 2000 {
			e.Update(float64(1 + (i+j)%2))
		}
	})
	stop.Store(true)
	readers.Wait()
	require.Zero(t, wrong.Load())
}

func TestEWMADoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates; run without -race to check allocations")
	}
	e := newEWMA(t, 0.95)
	require.Zero(t, testing.AllocsPerRun(100, func() { e.Update(e.Value() + 1) }))
}

// seeded reports whether the EWMA has had a sample.
func (e *EWMA) seeded() bool { return e.bits.Load() != 0 }
