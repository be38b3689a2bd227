package lease

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

// Redis comes back empty, and a process that has no lease is the first to ask: it gets a twentieth of the rate and of the burst
// until Redis has learnt, on top of what the others hold.
func TestLimitNewcomerAfterLoss(t *testing.T) {
	t.Parallel()
	const rate, burst = 1000, 100
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	o := steadyOptions(clientOf(t, p.Addr()), rate)
	o.Rule.Burst = burst
	f := &quotaFleet{t: t, rate: rate, burst: burst}
	f.join(o, 2*rate)
	f.run(time.Second)
	p.BlackHole(true) // the holder finds out late
	s.Restart()
	o.Client = clientOf(t, s.Addr())
	q := newQuota(t, o)
	r, err := q.Take(t.Context(), "k", burst/2)
	require.NoError(t, err)
	require.False(t, r.Allowed, "half of a burst is more than a newcomer gets")
	require.Positive(t, r.RetryAfter)
	began, passed := time.Now(), 0.0
	for refused := false; !refused || time.Since(began) < 100*time.Millisecond; {
		r, err := q.Take(t.Context(), "k", 1)
		require.NoError(t, err)
		if r.Source == cluster.FromRedis && r.Allowed {
			passed++
		}
		refused = refused || r.Source == cluster.FromRedis && !r.Allowed
	}
	took := time.Since(began)
	t.Logf("%.0f in %v", passed, took)
	require.GreaterOrEqual(t, passed, 0.05*burst)
	if took < 500*time.Millisecond { // else Redis may have learnt already
		require.LessOrEqual(t, passed, 0.05*(burst+rate*(took.Seconds()+0.1))+1)
	}
	st, _ := f.quotas[0].KeyStats("k")
	require.Positive(t, st.Grant, "the other goes on meanwhile")
}

// Redis was away for longer than a lease lasts, and comes back empty. One process finds its way back at once and wants all there
// is, a newcomer comes too, and one that goes on with half of the rate comes two terms later: until then nobody is given what
// it holds.
func TestLimitLateHolder(t *testing.T) {
	t.Parallel()
	const rate, burst = 1000, 50
	s := redistest.Start(t)
	late := redistest.NewProxy(t, s.Addr())
	f := &quotaFleet{t: t, rate: rate, burst: burst}
	for _, addr := range []string{s.Addr(), late.Addr()} {
		o := steadyOptions(clientOf(t, addr), rate)
		o.Rule.Burst = burst
		f.join(o, 2*rate)
	}
	half := func(i int) bool {
		st, _ := f.quotas[i].KeyStats("k")
		return st.Source == cluster.FromLease && math.Abs(st.Grant-rate/2) < rate/20
	}
	for tries := 0; !half(0) || !half(1); tries++ {
		f.run(200 * time.Millisecond)
		require.Less(t, tries, 50)
	}
	s.Kill()
	f.run(700 * time.Millisecond)
	for _, q := range f.quotas { // it may have given up some, if the load came late
		st, _ := q.KeyStats("k")
		require.Equal(t, cluster.FromHold, st.Source)
		require.Greater(t, st.Grant, rate/4.0)
	}
	late.BlackHole(true)
	s.Restart()
	o := steadyOptions(clientOf(t, s.Addr()), rate)
	o.Rule.Burst = burst
	f.join(o, 2*rate)
	const away = 1200 * time.Millisecond
	began := time.Now()
	sum := total(f.run(away)) * away.Seconds()
	took := time.Since(began)
	t.Logf("%.0f in %v, worst 100 ms %+.0f %%", sum, took, 100*(f.worst()/(rate/10)-1))
	st, _ := f.quotas[1].KeyStats("k")
	require.Equal(t, cluster.FromHold, st.Source)
	require.LessOrEqual(t, sum, 1.05*(rate*took.Seconds()+burst)+4)
	require.LessOrEqual(t, f.worst(), 1.05*(rate*0.11+burst)+4) // a loaded machine counts some in the next window
	late.Heal()
	f.settle("the late one is back", 1)
}

// A server that has just begun has not heard of all processes. How many there are is not taken from it before it has learnt:
// if it goes at once, each process must go on with its own share.
func TestLimitBelievesNoNumberOfATableThatLearns(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := newQuota(t, Options{Client: clientOf(t, s.Addr()), Rule: limiter.Bucket{Rate: limiter.Per(300, time.Second)}, Nodes: 3, Timeout: 5 * time.Second})
	_, err := q.Take(t.Context(), "k", 1)
	require.NoError(t, err)
	require.Equal(t, int64(3), q.Stats().Nodes)
	require.Eventually(t, func() bool {
		_, err := q.Take(t.Context(), "k", 1)
		return err == nil && q.Stats().Nodes == 1
	}, 30*time.Second, 5*time.Millisecond)
}
