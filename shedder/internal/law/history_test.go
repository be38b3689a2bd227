package law

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func ignore(*bucket) {}

// naive finds the greatest rates as their definition says: over the shortest windows that are long enough and have enough
// answers, one for each bucket that ends within the last window seconds.
func naive(p *Params, ring []bucket, window float64) (rate, pass float64) {
	sum := func(from, to int) (n float64) {
		for _, b := range ring[from:to] {
			n += b.ended
		}
		return n
	}
	for end := len(ring); end > 0 && float64(len(ring)-end)*span < window; end-- {
		stay := int(math.Ceil(ring[end-1].mean() / span))
		if one := max(2, min(stay, reach)); one <= end {
			pass = math.Max(pass, sum(end-one, end)/(float64(one)*span))
		}
		least := min(max(10, min(stay, reach)), len(ring))
		for length := least; length <= min(end, reach); length++ {
			n := sum(end-length, end)
			if n >= p.Enough || length == reach || length == end && n > 0 {
				rate = math.Max(rate, n/(float64(length)*span))
				break
			}
			rate = math.Max(rate, (n-math.Sqrt(n))/(float64(length)*span))
		}
	}
	return rate, pass
}

func TestRatesAreThoseOfTheDefinition(t *testing.T) {
	p := Default()
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		window := 0.5 + 10*rng.Float64()
		most := []float64{1, 5, 50, 1000}[seed%4]
		longest := []float64{0.01, 0.3, 2, 15}[seed/4%4]
		var h history
		for i := range 500 {
			b := bucket{ended: math.Floor(rng.Float64() * most), inside: 1}
			b.answered, b.latency = b.ended, b.ended*longest*rng.Float64()
			if rng.IntN(30) == 0 {
				most = 1 + rng.Float64()*1000
			}
			h.close(&b, ignore)
			if i%7 != 0 {
				continue
			}
			h.measure(&p, window)
			rate, pass := naive(&p, h.ring, window)
			require.InDelta(t, rate, h.rate, 1e-6, "seed %d, %d buckets", seed, i)
			require.InDelta(t, pass, h.pass, 1e-6, "seed %d, %d buckets", seed, i)
		}
	}
}

func TestASteadyRateIsFoundAsItIs(t *testing.T) {
	p := Default()
	for _, dt := range []float64{0.001, 0.02, 0.033, 0.05, 0.2} {
		for _, rate := range []float64{20, 1000} {
			h := history{n: 1}
			for at := 0.0; at < 10; at += dt {
				h.advance(&p, 5, &bucket{ended: rate * dt, answered: rate * dt, latency: rate * dt * 0.01, inside: 1}, dt, ignore)
			}
			require.InEpsilon(t, rate, h.rate, 0.01, "steps of %v", dt)
			require.InEpsilon(t, rate, h.pass, 0.01, "steps of %v: a bucket holds 50 ms, not three steps of 20", dt)
		}
	}
}

// Forty answers of a quiet second's load take ten seconds. A rate that waits for them refuses a load that has risen.
func TestTheRateFollowsAStepOfFewRequests(t *testing.T) {
	p := Default()
	h := history{n: 1}
	for range 200 {
		h.close(&bucket{ended: 0.15, answered: 0.15, latency: 0.05, inside: 1}, ignore)
	}
	for range 20 {
		h.close(&bucket{ended: 1, answered: 1, latency: 0.3, inside: 1}, ignore)
	}
	h.measure(&p, 5)
	require.InDelta(t, 20-math.Sqrt(20), h.rate, 1.5)
}

func TestAWindowCoversAtLeastOneLatency(t *testing.T) {
	p := Default()
	var h history
	for range 20 {
		h.close(&bucket{inside: 1}, ignore)
	}
	h.close(&bucket{ended: 350, answered: 350, latency: 350 * 0.7, inside: 1}, ignore)
	h.measure(&p, 5)
	require.InDelta(t, 500, h.pass, 1, "350 in 0.7 s, not in 50 ms")
	require.InDelta(t, 500, h.rate, 1)
}

// Latencies beyond the reach of the history have a rate, too.
func TestALatencyOfAMinuteHasARate(t *testing.T) {
	p := Default()
	var h history
	for range 2 * reach {
		h.close(&bucket{ended: 5, answered: 5, latency: 5 * 60, inside: 300}, ignore)
	}
	h.measure(&p, 5)
	require.InDelta(t, 100, h.rate, 1e-6)
	require.InDelta(t, 100, h.pass, 1e-6)
}

func TestSomeRateIsLeftWhileAllIsStuck(t *testing.T) {
	p := Default()
	var h history
	for range 100 {
		h.close(&bucket{ended: 5, answered: 5, latency: 0.05, inside: 1}, ignore)
	}
	h.measure(&p, 5)
	h.n = 3
	for range 1000 {
		h.close(&bucket{inside: 3 * span}, ignore)
		h.measure(&p, 5)
	}
	require.Positive(t, h.rate, "or there were no limit")
	require.Positive(t, h.pass)
}

func TestGapsAreSpread(t *testing.T) {
	p := Default()
	h := history{n: 1}
	closed := 0
	h.advance(&p, 5, &bucket{ended: 100, admitted: 60, inside: 20}, 1, func(b *bucket) {
		closed++
		require.InDelta(t, 5, b.ended, 1e-9)
		require.InDelta(t, 3, b.admitted, 1e-9)
	})
	require.Equal(t, 20, closed)
	require.InDelta(t, 100, h.rate, 1e-6)
}

func TestNothingIsLostBetweenBuckets(t *testing.T) {
	p := Default()
	rng := rand.New(rand.NewPCG(3, 0))
	var h history
	var in, out bucket
	for range 2000 {
		b := bucket{admitted: rng.Float64(), refused: rng.Float64(), left: rng.Float64(), ended: rng.Float64(), answered: rng.Float64(),
			latency: rng.Float64(), inside: 1 + rng.Float64()}
		in.add(&b, 1)
		h.advance(&p, 5, &b, 0.3*rng.Float64()*rng.Float64(), func(b *bucket) { out.add(b, 1) })
	}
	out.add(&h.open, 1)
	for i, pair := range [][2]float64{{in.admitted, out.admitted}, {in.refused, out.refused}, {in.left, out.left}, {in.ended, out.ended},
		{in.answered, out.answered}, {in.latency, out.latency}, {in.inside, out.inside}} {
		require.InEpsilon(t, pair[0], pair[1], 1e-9, "field %d", i)
	}
}

// A night without a request says nothing about the service.
func TestSilenceIsSkipped(t *testing.T) {
	p := Default()
	var h history
	for range 100 {
		h.advance(&p, 5, &bucket{ended: 5, answered: 5, latency: 0.05, inside: 1}, span, ignore)
	}
	before := h.rate
	for range 1000 {
		h.advance(&p, 5, &bucket{}, 1, ignore)
	}
	require.InDelta(t, before, h.rate, 1e-9)
	require.LessOrEqual(t, len(h.ring), 2*reach, "its memory is bounded")
}

func TestLastCoversAtLeastWhatWasAskedFor(t *testing.T) {
	p := Default()
	var h history
	for range 60 {
		h.advance(&p, 5, &bucket{ended: 2, inside: 1}, 0.02, ignore)
	}
	b, seconds, ok := h.last(0.5)
	require.True(t, ok)
	require.GreaterOrEqual(t, seconds, 0.5)
	require.Less(t, seconds, 0.5+2*span)
	require.InDelta(t, 100, b.ended/seconds, 5)
	_, _, ok = h.last(5)
	require.False(t, ok, "there are not so many yet")
}

func TestSharesOfNothing(t *testing.T) {
	var b bucket
	require.Zero(t, b.share())
	require.Zero(t, b.mean())
	require.Zero(t, b.stay())
	require.True(t, math.IsNaN(b.kept()) || b.kept() == 0, "nobody asked: no pace")
}

// A process that has nothing to do stands still, and then many requests come at once. None is late, since all in flight came just now.
func TestNoAnswerIsMissingIfAllInFlightAreYoung(t *testing.T) {
	p := Default()
	var h history
	for range 20 {
		h.ring = append(h.ring, bucket{admitted: 11, left: 11, ended: 11, answered: 11, latency: 0.2, inside: 0.2})
	}
	h.ring = append(h.ring, bucket{}, bucket{}, bucket{}, bucket{}, bucket{admitted: 22, left: 2, ended: 2, answered: 2, latency: 0.02})
	h.uneven, h.n = 1, 20
	_, _, few := h.fewer(&p, 150, 0.15, p.Few, p.Expect, 0)
	require.False(t, few)
	h.n = 40 // some are old
	_, _, few = h.fewer(&p, 150, 0.15, p.Few, p.Expect, 0)
	require.True(t, few)
}
