package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/exact"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/cluster/lease"
	"github.com/spillway-go/spillway/cluster/lock"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/rules"
)

// The document of a Redis key steers a limit, an outage of Redis changes nothing, and the late answer is not lost.
func TestRulesFromRedis(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := redistest.NewClient(t, proxy.Addr())
	lim := spillway.Must(limiter.New(limiter.Concurrency{Limit: 5}))
	set := spillway.Must(rules.New(map[string]rules.Target{"api": rules.Of(lim)}))
	limit := func() int { return lim.Rule().(limiter.Concurrency).Limit }
	w, err := set.Follow(cluster.Rules(client, "shop:rules"), &rules.Options{Name: "redis", Every: time.Hour})
	require.NoError(t, err)
	defer w.Close()
	require.EqualError(t, set.Stats().Err, `cluster: Redis has no key "shop:rules"`)

	write := func(n int) {
		server.Do("SET", "shop:rules", fmt.Sprintf(`{"rules": {"api": {"Limit": %d}}}`, n))
	}
	write(6)
	require.NoError(t, w.Refresh(t.Context()))
	require.Equal(t, 6, limit())
	server.Do("DEL", "shop:rules")
	server.Do("LPUSH", "shop:rules", "x")
	require.ErrorContains(t, w.Refresh(t.Context()), "WRONGTYPE")
	require.Equal(t, 6, limit())
	write(7)

	proxy.SetLatency(300 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, w.Refresh(ctx), context.DeadlineExceeded)
	require.Equal(t, 6, limit())
	proxy.SetLatency(0)
	require.NoError(t, w.Refresh(t.Context()))
	require.Equal(t, 7, limit())
}

// A Set checks the limits of this module before it tunes any.
func TestClusterLimitsAreTargets(t *testing.T) {
	client := redistest.NewClient(t, redistest.Start(t).Addr())
	rule := limiter.Bucket{Rate: limiter.Per(10, time.Second)}
	both := newLimit(t, exact.Options{Client: client, Name: "both", Rules: []limiter.Rule{rule, limiter.FixedWindow{Name: "day", Limit: 50, Period: 24 * time.Hour}}})
	leased := newLease(t, lease.Options{Client: client, Rule: rule})
	sem := newLock(t, lock.Options{Client: client, Limit: 3})
	set := spillway.Must(rules.New(map[string]rules.Target{"exact": rules.Of(both), "lease": rules.Of(leased), "lock": rules.Of(sem)}))
	before := string(set.Document())
	for _, bad := range []string{
		`{"exact": {"day": {"Limit": 60}}, "lease": {"Rate": "0/s"}}`, `{"exact": {"day": {"Limit": 60}}, "lock": {"Limit": -1}}`,
		`{"exact": {"week": {"Limit": 60}}}`, `{"exact": {"day": {"Limit": -1}}}`, `{"lock": {"TTL": "1m"}}`,
	} {
		require.Error(t, set.Apply([]byte(`{"rules": `+bad+`}`)), bad)
		require.Equal(t, before, string(set.Document()))
	}
	require.NoError(t, set.Apply([]byte(`{"rules": {"exact": {"day": {"Limit": 60}, "token bucket": {"Rate": "20/s"}},
		"lease": {"Rate": "30/s", "Burst": 0}, "lock": {"Limit": 4, "MaxWait": "1s"}}}`)))
	require.Equal(t, []limiter.Rule{
		limiter.Bucket{Rate: limiter.Per(20, time.Second), Burst: 10, Name: "token bucket"}, limiter.FixedWindow{Name: "day", Limit: 60, Period: 24 * time.Hour},
	}, both.Rules())
	require.Equal(t, 30, leased.Rule().Burst)
	require.Equal(t, 4, sem.Options().Limit)
	require.NoError(t, set.Apply([]byte(`{"rules": {}}`)))
	require.Equal(t, before, string(set.Document()))
}
