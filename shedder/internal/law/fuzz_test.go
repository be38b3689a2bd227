package law

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// absurd is what a sensor of the user's may say.
var absurd = []float64{0, -1, 1, 1e-300, 1e300, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, 0.5}

// FuzzLaw feeds a Law with counters as they may be and with sensors that say anything. Its verdict stays a limit.
func FuzzLaw(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, uint16(2000), uint8(seed), uint8(7*seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16, least, most uint8) {
		rng := rand.New(rand.NewPCG(seed, 0))
		o := Options{Threshold: rng.Float64(), CoolDown: 3 * rng.Float64(), Window: 0.5 + 29*rng.Float64(), MinLimit: float64(least),
			MaxLimit: math.Inf(1), CPUOnly: seed%5 == 0, SLO: float64(seed%3) * 0.1}
		if most > 0 {
			o.MaxLimit = math.Max(1, math.Max(float64(most), o.MinLimit))
		}
		l := New(Default())
		l.Tune(o)
		lowest := math.Min(2, o.MaxLimit)
		if o.MinLimit > 0 {
			lowest = o.MinLimit
		}
		sense := func(sane float64) float64 {
			if rng.IntN(20) == 0 {
				return absurd[rng.IntN(len(absurd))]
			}
			return sane
		}
		inside, scale := 0.0, 1.0
		for i := range steps {
			if rng.IntN(100) == 0 {
				scale = math.Pow(10, 5*rng.Float64()-1)
			}
			r := Reading{Dt: rng.Float64() * 0.05, Admitted: math.Floor(rng.Float64() * scale), Refused: math.Floor(rng.Float64() * scale * float64(rng.IntN(2)))}
			if rng.IntN(50) == 0 {
				r.Dt = []float64{0, 1e-9, 1, 3600, 1e9}[rng.IntN(5)]
			}
			r.Left = math.Floor(rng.Float64() * (inside + r.Admitted))
			r.Ended = math.Floor(rng.Float64() * (r.Left + 1))
			r.Answered = math.Floor(rng.Float64() * (r.Ended + 1))
			r.Latency = r.Answered * rng.ExpFloat64() * math.Pow(10, 6*rng.Float64()-5)
			inside += r.Admitted - r.Left
			r.InFlight = inside
			r.CPU, r.Smoothed = sense(rng.Float64()), sense(rng.Float64())
			r.CPUKnown, r.CPUFresh, r.WaitFresh, r.Signal = rng.IntN(10) > 0, rng.IntN(12) == 0, rng.IntN(3) > 0, rng.IntN(30) == 0
			r.CPUs, r.Wait = sense(2), sense(rng.Float64()*0.05)
			r.Pause, r.Running = sense(0), sense(1)
			v := l.Step(&r)
			require.False(t, math.IsNaN(v.Limit), "step %d: %+v", i, r)
			require.GreaterOrEqual(t, v.Limit, lowest, "step %d: %+v", i, r)
			require.LessOrEqual(t, v.Limit, o.MaxLimit, "step %d: %+v", i, r)
			require.True(t, v.Drop >= 0 && v.Drop <= 1, "step %d: drop %v, %+v", i, v.Drop, r)
			require.LessOrEqual(t, v.Reason, Signal)
			require.False(t, math.IsNaN(l.Pass()))
			require.GreaterOrEqual(t, l.Latency().Nanoseconds(), int64(0))
		}
	})
}
