package adaptive

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

func TestStepGradient2(t *testing.T) {
	warm := func(long float64) Gradient2 { return Gradient2{long: long, seen: gradient2Warm} }
	weight := 2.0 / (gradient2Window + 1)
	for name, c := range map[string]struct {
		from        Gradient2
		before      float64
		s           Sample
		limit, long float64
	}{
		"the first sample is the mean":                         {Gradient2{}, 20, Sample{Latency: 10 * ms, InFlight: 20}, 20.8, 0.01},
		"as always: room for the queue":                        {warm(0.01), 50, Sample{Latency: 10 * ms, InFlight: 50}, 50.8, 0.01},
		"tolerated: still no less":                             {warm(0.01), 50, Sample{Latency: 14 * ms, InFlight: 50}, 50.8, 0.01 + 0.004*weight},
		"ten times as long: the least":                         {warm(0.01), 100, Sample{Latency: 100 * ms, InFlight: 100}, 100*0.8 + 54*0.2, 0.01 + 0.09*weight},
		"not tried: stays":                                     {warm(0.01), 50, Sample{Latency: 100 * ms, InFlight: 24}, 50, 0.01 + 0.09*weight},
		"Dropped: the least, though quick, and the mean stays": {warm(0.01), 100, Sample{Latency: ms, InFlight: 100, Dropped: true}, 100*0.8 + 54*0.2, 0.01},
		"the mean stays below the ceiling":                     {warm(0.01), 50, Sample{Latency: 14 * ms, InFlight: 50, Ceiling: 10 * ms}, 50.8, 0.01},
		"the ceiling lowers the mean":                          {warm(0.1), 100, Sample{Latency: 100 * ms, InFlight: 100, Ceiling: 10 * ms}, 100*0.8 + 54*0.2, 0.01},
		"an overload that is over fades":                       {warm(0.1), 50, Sample{Latency: 10 * ms, InFlight: 1}, 50, (0.1 - 0.09*weight) * gradient2Decay},
	} {
		got, limit := stepGradient2(c.from, c.before, c.s)
		require.InDelta(t, c.limit, limit, 1e-9, name)
		require.InDelta(t, c.long, got.long, 1e-9, name)
	}
}

func TestStepVegas(t *testing.T) {
	at := Vegas{least: 10 * ms}
	for name, c := range map[string]struct {
		from   Vegas
		before float64
		s      Sample
		limit  float64
		least  time.Duration
	}{
		"the first sample is the least":     {Vegas{}, 20, Sample{Latency: 10 * ms, InFlight: 20}, 20, 10 * ms},
		"a lesser one replaces it":          {at, 20, Sample{Latency: 9 * ms, InFlight: 20}, 20, 9 * ms},
		"nobody queues: a leap":             {at, 20, Sample{Latency: 10 * ms, InFlight: 20}, 26, 10 * ms},
		"a leap of a limit of hundreds":     {at, 200, Sample{Latency: 10 * ms, InFlight: 200}, 212, 10 * ms},
		"2 queue: one more":                 {at, 20, Sample{Latency: 11 * ms, InFlight: 20}, 21, 10 * ms},
		"4 queue: stays":                    {at, 20, Sample{Latency: 12 * ms, InFlight: 20}, 20, 10 * ms},
		"10 queue: one less":                {at, 20, Sample{Latency: 20 * ms, InFlight: 20}, 19, 10 * ms},
		"not tried: stays":                  {at, 20, Sample{Latency: 20 * ms, InFlight: 9}, 20, 10 * ms},
		"Dropped: one less, though quick":   {at, 20, Sample{Latency: ms, InFlight: 1, Dropped: true}, 19, 10 * ms},
		"Dropped teaches no latency":        {Vegas{}, 20, Sample{Latency: ms, InFlight: 1, Dropped: true}, 19, 0},
		"the first is the ceiling at most":  {Vegas{}, 20, Sample{Latency: 10 * ms, InFlight: 20, Ceiling: 5 * ms}, 20, 5 * ms},
		"the ceiling lowers the least":      {at, 20, Sample{Latency: 10 * ms, InFlight: 20, Ceiling: 5 * ms}, 19, 5 * ms},
		"learned anew, the ceiling at most": {Vegas{least: 10 * ms, samples: 1000}, 20, Sample{Latency: 90 * ms, InFlight: 20, Ceiling: 20 * ms}, 20, 20 * ms},
	} {
		got, limit := stepVegas(c.from, c.before, c.s)
		require.InDelta(t, c.limit, limit, 1e-9, name)
		require.Equal(t, c.least, got.least, name)
	}
}

func TestVegasForgetsTheLeastLatency(t *testing.T) {
	for seed := range uint64(100) {
		v := Vegas{Seed: seed, least: 10 * ms}
		due := 0
		for v.least == 10*ms {
			before := v.samples
			v, _ = stepVegas(v, 20, Sample{Latency: 12 * ms, InFlight: 20})
			due = before + 1
		}
		require.Equal(t, 12*ms, v.least)
		require.Zero(t, v.samples)
		require.GreaterOrEqual(t, due, 300, "0.5 · 30 · 20")
		require.LessOrEqual(t, due, 600)
		require.NotEqual(t, (&Vegas{Seed: seed}).jitter(), v.jitter())
	}
}

func TestStepAIMD(t *testing.T) {
	for name, c := range map[string]struct {
		from float64
		s    Sample
		to   float64
	}{
		"tried: one more":       {50, Sample{Latency: ms, InFlight: 25}, 51},
		"not tried: stays":      {50, Sample{Latency: ms, InFlight: 24}, 50},
		"Dropped: a tenth less": {50, Sample{Latency: ms, InFlight: 50, Dropped: true}, 45},
		"5 s are in time":       {50, Sample{Latency: 5 * time.Second, InFlight: 50}, 51},
		"more than 5 s are not": {50, Sample{Latency: 5*time.Second + 1, InFlight: 50}, 45},
		"whole requests":        {55, Sample{Dropped: true}, 49},
	} {
		require.InDelta(t, c.to, stepAIMD(c.from, c.s, aimdTimeout), 1e-9, name)
	}
}

// The queue that Vegas reckons with is compared exactly: 2 places pass for none at a limit of 128, 6 let it be, 12 too.
func TestVegasStepsAreExact(t *testing.T) {
	for queue, want := range map[int]float64{0: 140, 2: 140, 3: 130, 5: 130, 6: 128, 12: 128, 13: 126} {
		v := &Vegas{}
		require.InDelta(t, 128, v.Step(128, Sample{Latency: time.Duration(128 - queue), InFlight: 128}), 0)
		require.InDelta(t, want, v.Step(128, Sample{Latency: 128, InFlight: 128}), 0, queue)
	}
	v := &Vegas{}
	v.Step(128, Sample{Latency: 128, InFlight: 128})
	require.InDelta(t, 140, v.Step(128, Sample{Latency: 128, InFlight: 64}), 0, "half of the limit was tried")
	require.InDelta(t, 128, v.Step(128, Sample{Latency: 128, InFlight: 63}), 0)
	require.InDelta(t, 126, v.Step(128, Sample{Dropped: true}), 0)
}

func TestTheLeastTolerance(t *testing.T) {
	_, err := New(&Options{Estimator: &Gradient2{Tolerance: 1}})
	require.NoError(t, err)
}
