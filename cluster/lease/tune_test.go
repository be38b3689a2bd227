package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

// A limit is changed in all processes while they run: a smaller one holds at once, and three intervals later each has its share.
func TestLimitTune(t *testing.T) {
	t.Parallel()
	inSomeAttempt(t, tuned)
}

func tuned(t *testing.T, c *complaints) {
	t.Helper()
	s := redistest.Start(t)
	f := &quotaFleet{t: t, rate: 2000, burst: 200}
	for _, d := range skewedDemand(3, 6000) {
		o := steadyOptions(clientOf(t, s.Addr()), 2000)
		o.Rule.Burst = 200
		f.join(o, d)
	}
	f.run(700 * time.Millisecond)
	for _, rate := range []int{500, 3000} {
		before := f.rate
		f.rate, f.burst = float64(rate), float64(rate)/10
		for _, q := range f.quotas {
			require.NoError(t, q.Tune(limiter.Bucket{Rate: limiter.Per(rate, time.Second), Burst: rate / 10}))
		}
		began := time.Now()
		got := total(f.run(600*time.Millisecond)) * 0.6
		require.LessOrEqual(t, got, f.rate*time.Since(began).Seconds()+max(f.burst, before/10)+4, "from %v to %d", before, rate)
		got = total(f.run(400 * time.Millisecond))
		t.Logf("%d: %.0f", rate, got)
		assert.GreaterOrEqual(c, got, 0.7*f.rate)
		assert.LessOrEqual(c, got, 1.05*f.rate+f.burst/0.4+4)
	}
	left := f.quotas[0].Quota(time.Now(), spillway.Request{Key: "k"})
	require.Equal(t, "quota", left.Name)
	require.EqualValues(t, 300, left.Limit)
	require.Equal(t, 100*time.Millisecond, left.Window)
}

// The rules of New hold for a change, and one that breaks them changes nothing. A limit that becomes too small for leases is
// decided in Redis from then on.
func TestLimitTuneValidates(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := leased(t, Options{Client: clientOf(t, s.Addr()), Rule: limiter.Bucket{Rate: limiter.Per(1000, time.Second)}})
	for want, rate := range map[string]limiter.Rate{
		"lease: Tune: Rule: limiter: Bucket: Rate.Tokens must not be negative, got -1": {Tokens: -1, Per: time.Second},
		"lease: Tune: Rule: limiter: Bucket: Rate.Per must be positive, got 0s":        {Tokens: 5},
		"lease: Tune: Rule: Rate.Tokens must be in 1..2^52/1000, got 0":                {Per: time.Second},
	} {
		require.EqualError(t, q.Tune(limiter.Bucket{Rate: rate}), want)
	}
	require.EqualError(t, q.Tune(limiter.Bucket{Rate: limiter.Per(5, time.Second), Burst: -7}), "lease: Tune: Rule: limiter: Bucket: Burst must be at least 1, got -7")
	renamed := q.Rule()
	renamed.Name = "other"
	require.EqualError(t, q.Tune(renamed), `lease: Tune: Rule: Name must stay "quota", got "other"`)
	require.NoError(t, q.Tune(q.Rule()))
	require.EqualValues(t, 1000, q.burst())
	require.Error(t, new(Limit).Tune(limiter.Bucket{}))
	require.NoError(t, q.Tune(limiter.Bucket{Rate: limiter.Per(3, time.Hour)}))
	admitted := 0
	until(t, "the lease to be given back", func() bool {
		if admit(q, "k") == nil {
			admitted++
		}
		return q.Stats().Leased == 0
	})
	require.LessOrEqual(t, admitted, 30, "what is left of a bucket fits into the new one")
	r, err := q.Take(t.Context(), "k", 3)
	require.NoError(t, err)
	require.Equal(t, cluster.FromRedis, r.Source)
	_, err = q.Take(t.Context(), "k", 4)
	var ce *limiter.CostError
	require.ErrorAs(t, err, &ce)
}
