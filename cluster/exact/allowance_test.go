package exact

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

func newAllowance(t *testing.T, client redis.UniversalClient, w limiter.FixedWindow, o AllowanceOptions) *Allowance {
	t.Helper()
	l, err := New(&Options{Client: client, Rules: []limiter.Rule{w}, Fallback: cluster.RefuseAll, Name: "daily"})
	require.NoError(t, err)
	o.Limit = l
	a, err := NewAllowance(&o)
	require.NoError(t, err)
	return a
}

// Nodes that spend a day's allowance together, in any order, get exactly that, and ask Redis a small part of the times.
func TestAllowanceIsExactInSum(t *testing.T) {
	s := redistest.Start(t)
	const limit = 20_000
	var nodes []*Allowance
	for range 4 {
		nodes = append(nodes, newAllowance(t, redistest.NewClient(t, s.Addr()),
			limiter.FixedWindow{Limit: limit, Calendar: limiter.EveryMonth}, AllowanceOptions{Nodes: 4}))
	}
	var admitted atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		a := nodes[i%4]
		all.Go(func() {
			for range 2 * limit / 8 {
				r := spillway.Request{Key: "k", Arrived: time.Now(), Cost: 1 + i%3}
				if _, err := a.Admit(context.Background(), r); err == nil {
					admitted.Add(int64(r.Cost))
				}
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, admitted.Load(), int64(limit))
	for _, a := range nodes {
		a.Close()
	}
	r, err := nodes[0].limit.Take(context.Background(), "k", 0)
	require.NoError(t, err)
	require.Equal(t, limit-admitted.Load(), r.Remaining, "Close gives back what was not spent")
	require.Less(t, r.Remaining, int64(limit/20))
	var calls int64
	for _, a := range nodes {
		calls += a.limit.Stats().Admitted
	}
	t.Logf("%d tokens in %d calls of Redis", admitted.Load(), calls)
	require.Less(t, calls, int64(limit/10))
}

func TestAllowanceGivesBackAndSweeps(t *testing.T) {
	s := redistest.Start(t)
	a := newAllowance(t, redistest.NewClient(t, s.Addr()), limiter.FixedWindow{Limit: 5000, Period: time.Hour},
		AllowanceOptions{Nodes: 1, TTL: 10 * time.Millisecond})
	r := spillway.Request{Key: "k", Arrived: time.Now()}
	for range 10_000 {
		ticket, err := a.Admit(context.Background(), r)
		require.NoError(t, err)
		a.Done(r, ticket, spillway.Result{Outcome: spillway.Refused})
	}
	q := a.Quota(time.Now(), r)
	require.Equal(t, "fixed window", q.Name)
	require.EqualValues(t, 5000, q.Limit)
	require.Equal(t, time.Hour, q.Window)
	require.Eventually(t, func() bool {
		a.Sweep(context.Background())
		a.mu.RLock()
		defer a.mu.RUnlock()
		return len(a.keys) == 0
	}, 5*time.Second, 5*time.Millisecond)
	left, err := a.limit.Take(context.Background(), "k", 0)
	require.NoError(t, err)
	require.Greater(t, left.Remaining, int64(4500), "what is given back when its term is over is lost to the window")
}

// A closed Allowance fetches no more, and what its Limit took goes back when a later policy refuses.
func TestClosedAllowanceAsksOneByOne(t *testing.T) {
	s := redistest.Start(t)
	a := newAllowance(t, redistest.NewClient(t, s.Addr()), limiter.FixedWindow{Limit: 50, Period: time.Hour}, AllowanceOptions{Nodes: 1})
	r := spillway.Request{Key: "k", Arrived: time.Now()}
	_, err := a.Admit(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	for _, c := range []struct {
		outcome spillway.Outcome
		left    int64
	}{{spillway.Refused, 49}, {spillway.Success, 48}, {spillway.Refused, 48}} {
		ticket, err := a.Admit(t.Context(), r)
		require.NoError(t, err)
		a.Done(r, ticket, spillway.Result{Outcome: c.outcome})
		require.Empty(t, a.keys)
		left, err := a.limit.Take(t.Context(), "k", 0)
		require.NoError(t, err)
		require.Equal(t, c.left, left.Remaining)
	}
}

func TestAllowanceOptions(t *testing.T) {
	client := redistest.NewClient(t, "127.0.0.1:1")
	window, err := New(&Options{Client: client, Fallback: cluster.RefuseAll, Rules: []limiter.Rule{limiter.FixedWindow{Limit: 3, Period: time.Hour}}})
	require.NoError(t, err)
	bucket, err := New(&Options{Client: client, Fallback: cluster.RefuseAll, Rules: []limiter.Rule{limiter.Bucket{Rate: limiter.Per(3, time.Hour)}}})
	require.NoError(t, err)
	for want, o := range map[string]*AllowanceOptions{
		"Limit must be set, got nil":             nil,
		"Limit must have one FixedWindow":        {Limit: bucket, Nodes: 1},
		"Nodes must be in 1..65536, got 0":       {Limit: window},
		"Chunk must be in 1..2^52, got -1":       {Limit: window, Nodes: 1, Chunk: -1},
		"TTL must be in 10ms..1h, got 1ns":       {Limit: window, Nodes: 1, TTL: 1},
		"MaxKeys must be in 1..16777216, got -1": {Limit: window, Nodes: 1, MaxKeys: -1},
	} {
		_, err := NewAllowance(o)
		require.ErrorContains(t, err, "exact: Allowance: "+want)
	}
	for _, nodes := range []int{1, maxNodes} {
		_, err := NewAllowance(&AllowanceOptions{Limit: window, Nodes: nodes})
		require.NoError(t, err)
	}
	_, err = NewAllowance(&AllowanceOptions{Limit: window, Nodes: maxNodes + 1})
	require.EqualError(t, err, "exact: Allowance: Nodes must be in 1..65536, got 65537")
}

// The tokens that a process has fetched are left for its clients, until they are no longer valid.
func TestAllowanceQuotaCountsFetchedTokens(t *testing.T) {
	s := redistest.Start(t)
	a := newAllowance(t, redistest.NewClient(t, s.Addr()), limiter.FixedWindow{Limit: 1000, Period: time.Hour},
		AllowanceOptions{Nodes: 1, Chunk: 100, TTL: time.Minute})
	r := spillway.Request{Key: "k", Arrived: time.Now()}
	for range 150 {
		_, err := a.Admit(t.Context(), r)
		require.NoError(t, err)
	}
	now := time.Now()
	held := a.batch("k").left.Load()
	require.Positive(t, held)
	there := a.limit.Quota(now, r).Remaining
	require.Equal(t, there+held, a.Quota(now, r).Remaining)
	later := now.Add(2 * time.Minute)
	require.Equal(t, a.limit.Quota(later, r).Remaining, a.Quota(later, r).Remaining)
}
