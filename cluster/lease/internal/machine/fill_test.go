package machine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Nobody gets more than it wants but for headroom, all is given out if enough is wanted, and who gets less than it wants gets
// the level, by weight: that is weighted max-min fairness.
func TestFillIsMaxMin(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		live := make([]*Entry, 1+rng.IntN(40))
		var wanted, weight float64
		for i := range live {
			live[i] = &Entry{Want: rng.ExpFloat64() * rng.ExpFloat64() * 100, Weight: 1 + float64(rng.IntN(5))}
			wanted += live[i].Want
			weight += live[i].Weight
		}
		const rate = 1000
		level, head := Fill(rate, weight, live)
		var given float64
		for _, e := range live {
			given += min(e.Want, level*e.Weight)
		}
		if wanted <= rate {
			require.Equal(t, float64(Unlimited), level)
			require.InDelta(t, Headroom*(rate-wanted), head*weight, 1e-6)
			continue
		}
		require.Zero(t, head)
		require.InDelta(t, rate, given, 1e-6, "all is given out")
	}
}

// Whatever the terms do, a bucket lets through what its rate gives, a burst, and one request.
func TestBucketKeepsItsBound(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 5))
		c := &Config{Rate: 1000, Burst: 100}
		var b Bucket
		b.terms.Store(nothing())
		now := time.Duration(rng.Int64N(int64(time.Hour)))
		var admitted, gained, rate float64
		for range 5000 {
			dt := time.Duration(rng.Int64N(int64(2 * time.Millisecond)))
			now += dt
			gained += rate * dt.Seconds()
			if rng.IntN(50) == 0 {
				rate = []float64{0, 1, 100, 1000 * rng.Float64(), 1000}[rng.IntN(5)]
				b.set(now, newTerms(c, rate, Forever, FromLease, nil), 0)
			}
			n := 1 + rng.Int64N(3)
			if ok, _, _ := b.Take(now, n); ok {
				admitted += float64(n)
			}
			require.LessOrEqual(t, admitted, gained+4, "it began empty: one request of 3 tokens may be owed")
		}
	}
}

// Who waits as long as it was told passes, and not before.
func TestBucketTellsTheWait(t *testing.T) {
	c := &Config{Rate: 1000, Burst: 20}
	var b Bucket
	b.set(0, newTerms(c, 300, Forever, FromLease, nil), 7)
	now := time.Second
	for range 1000 {
		ok, wait, _ := b.Take(now, 2)
		if ok {
			continue
		}
		ok, _, _ = b.Take(now+wait-2*time.Nanosecond, 1)
		require.False(t, ok)
		now += wait
		ok, _, _ = b.Take(now, 1)
		require.True(t, ok)
	}
}

// Terms end by themselves, one after the other, with nobody there to end them.
func TestTermsFollowEachOther(t *testing.T) {
	c := &Config{Rate: 100, Burst: 10, TTL: 600 * time.Millisecond, Interval: 200 * time.Millisecond, Timeout: 300 * time.Millisecond,
		Grace: 5 * time.Second, Nodes: 4}
	n := NewNode(c, "a", 0, rand.New(rand.NewPCG(1, 1)))
	q := n.Begin(time.Second, 50)
	require.True(t, n.Apply(time.Second+time.Millisecond, &Reply{Seq: q.Seq, Grant: 40, Nodes: 2}))
	lease := time.Second + 588*time.Millisecond
	for _, c := range []struct {
		at   time.Duration
		from Source
		rate float64
	}{
		{time.Second, FromLease, 40}, {lease - 1, FromLease, 40}, {lease, FromHold, 40},
		{lease + 5*time.Second - 1, FromHold, 40}, {lease + 5*time.Second, FromShare, 50}, {time.Hour, FromShare, 50},
	} {
		terms := n.Bucket.Terms(c.at)
		require.Equal(t, c.from, terms.From, "at %v", c.at)
		require.InDelta(t, c.rate, terms.Rate, 1e-9)
	}
}

// Demand follows a rise at once, a fall soon, and chance hardly.
func TestDemand(t *testing.T) {
	const interval = 200 * time.Millisecond
	var d Demand
	observe := func(rate float64) float64 {
		d.Observe(rate*interval.Seconds(), interval, interval)
		return d.Rate()
	}
	require.InDelta(t, 1000, observe(1000), 1e-9)
	require.InDelta(t, 5000, observe(5000), 1e-9)
	require.Less(t, observe(100), 500.0)
	require.InDelta(t, 120, observe(100), 30)
	rng := rand.New(rand.NewPCG(1, 9))
	var sum float64
	for range 2000 {
		n := 0.0
		for at := rng.ExpFloat64() / 100; at < interval.Seconds(); at += rng.ExpFloat64() / 100 {
			n++
		}
		d.Observe(n, interval, interval)
		sum += d.Rate()
	}
	require.InDelta(t, 100, sum/2000, 3, "not biased")
}
