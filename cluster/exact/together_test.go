package exact

import (
	"context"
	"math/rand/v2"
	"strconv"
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

// A user, its tenant and all tenants: tokens are taken of all three or of none, and given back one by one.
func TestTakeAll(t *testing.T) {
	client := server(t)
	user := newLimit(t, client, Options{Name: "user", Rules: []limiter.Rule{limiter.Bucket{Rate: limiter.Per(2, time.Hour)}}})
	tenant := newLimit(t, client, Options{Name: "tenant", Rules: []limiter.Rule{
		limiter.FixedWindow{Limit: 5, Calendar: limiter.EveryMonth}, limiter.SlidingLog{Limit: 4, Window: time.Hour},
	}})
	all := newLimit(t, client, Options{Name: "all", Rules: []limiter.Rule{limiter.SlidingWindow{Limit: 40, Window: time.Hour}}})
	claims := func(who string) []Claim {
		return []Claim{{Limit: user, Key: who}, {Limit: tenant, Key: "t", Cost: 2}, {Limit: all, Cost: 10}}
	}
	left := func(who string, want ...int64) {
		t.Helper()
		for i, c := range claims(who) {
			r, err := c.Limit.Take(t.Context(), c.Key, 0)
			require.NoError(t, err)
			require.Equal(t, want[i], r.Remaining, "claim %d", i)
		}
	}
	first, err := TakeAll(t.Context(), claims("a")...)
	require.NoError(t, err)
	for i, want := range []int64{1, 2, 10} {
		require.True(t, first[i].Allowed)
		require.Equal(t, want, first[i].Taken)
		require.Equal(t, cluster.FromRedis, first[i].Source)
	}
	require.Equal(t, "sliding log", first[1].Rule, "the rule of the tenant with the smaller part left")
	left("a", 1, 2, 30)
	_, err = TakeAll(t.Context(), claims("a")...)
	require.NoError(t, err)
	left("a", 0, 0, 20)

	r, err := TakeAll(t.Context(), claims("b")...) // the tenant has no more
	require.NoError(t, err)
	for i := range r {
		require.False(t, r[i].Allowed)
		require.Zero(t, r[i].Taken)
		require.Equal(t, i == 1, r[i].RetryAfter > 0, "claim %d", i)
	}
	r, err = TakeAll(t.Context(), claims("b")...)
	require.NoError(t, err)
	require.Equal(t, cluster.FromMemory, r[1].Source, "known without a call")
	require.False(t, r[0].Allowed || r[1].Allowed || r[2].Allowed)
	left("b", 2, 0, 20)

	for i, c := range claims("a") {
		require.NoError(t, c.Limit.Refund(t.Context(), c.Key, &first[i], 100))
	}
	left("a", 1, 2, 30)
	r, err = TakeAll(t.Context(), claims("b")...)
	require.NoError(t, err)
	require.True(t, r[0].Allowed && r[1].Allowed && r[2].Allowed)
	require.EqualValues(t, 3, tenant.Stats().Admitted)
	require.EqualValues(t, 2, tenant.Stats().Refused)
	require.Equal(t, []spillway.Refusal{{Policy: "fixed window", Reason: "quota used up", Count: 2}}, tenant.Stats().ByReason)
	require.Zero(t, user.Stats().Refused, "it had tokens")
}

// Many callers take of random sets of keys at once: each key gives exactly what the calls that were let through took.
func TestTakeAllIsAtomic(t *testing.T) {
	client := server(t)
	rules := everyRule(60)
	limits := make([]*Limit, len(rules))
	for i, rule := range rules {
		limits[i] = newLimit(t, client, Options{Name: "l" + strconv.Itoa(i), Rules: []limiter.Rule{rule}})
	}
	const keys = 3
	var taken [16][keys]atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				var claims []Claim
				for i := range limits {
					if rand.IntN(2) == 0 {
						claims = append(claims, Claim{Limit: limits[i], Key: strconv.Itoa(rand.IntN(keys)), Cost: 1 + rand.IntN(5)})
					}
				}
				if len(claims) == 0 {
					continue
				}
				results, err := TakeAll(context.Background(), claims...)
				if err != nil {
					t.Error(err)
					return
				}
				for i, r := range results {
					if r.Allowed != results[0].Allowed || r.Err != nil || r.Allowed != (r.Taken == int64(claims[i].Cost)) {
						t.Errorf("%+v", results)
					}
					for j := range limits {
						if limits[j] == claims[i].Limit {
							k, _ := strconv.Atoi(claims[i].Key)
							taken[j][k].Add(r.Taken)
						}
					}
				}
			}
		})
	}
	all.Wait()
	for j, l := range limits {
		for k := range keys {
			require.LessOrEqual(t, taken[j][k].Load(), int64(60))
			r, err := l.Take(t.Context(), strconv.Itoa(k), 0)
			require.NoError(t, err)
			require.Equal(t, 60-taken[j][k].Load(), r.Remaining, "limit %d, key %d", j, k)
		}
	}
}

// On a Redis Cluster the limits need one Slot, and get it.
func TestTakeAllOnACluster(t *testing.T) {
	t.Parallel()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(redistest.StartCluster(t))})
	t.Cleanup(func() { _ = client.Close() })
	rules := []limiter.Rule{perSecond(1, 5), limiter.FixedWindow{Limit: 3, Period: time.Hour}}
	user := newLimit(t, client, Options{Name: "user", Slot: "api", Rules: rules[:1]})
	tenant := newLimit(t, client, Options{Name: "tenant", Slot: "api", Rules: rules})
	other := newLimit(t, client, Options{Name: "other", Rules: rules})
	for i := range 5 {
		r, err := TakeAll(t.Context(), Claim{Limit: user, Key: "}{" + strconv.Itoa(i)}, Claim{Limit: tenant, Key: "t"})
		require.NoError(t, err)
		require.NoError(t, r[1].Err)
		require.Equal(t, i < 3, r[0].Allowed)
		require.Equal(t, i < 3, r[1].Allowed)
	}
	_, err := TakeAll(t.Context(), Claim{Limit: user}, Claim{Limit: other})
	require.EqualError(t, err, `exact: TakeAll: claims[1]: Limit "other" must have the Slot of the first, as several servers have the keys, got ""`)
	r, err := TakeAll(t.Context(), Claim{Limit: other, Key: "alone"})
	require.NoError(t, err)
	require.True(t, r[0].Allowed)
	slots := map[int64]bool{}
	for _, l := range []*Limit{user, tenant} {
		for _, key := range []string{"a", "}", "{x}"} {
			for _, k := range l.keys(key) {
				slots[client.ClusterKeySlot(t.Context(), k).Val()] = true
			}
		}
	}
	require.Len(t, slots, 1)
}

// Without Redis each limit has its fallback, and what one had given goes back if another refuses.
func TestTakeAllWithoutRedis(t *testing.T) {
	client := deadRedis(t)
	rule := []limiter.Rule{limiter.FixedWindow{Limit: 8, Period: time.Hour}}
	divided := newLimit(t, client, Options{Name: "divided", Nodes: 2, Rules: rule})
	few := newLimit(t, client, Options{Name: "few", Nodes: 4, Rules: rule})
	never := newLimit(t, client, Options{Name: "never", Fallback: cluster.RefuseAll, Rules: rule})
	passed := 0
	for range 6 {
		r, err := TakeAll(t.Context(), Claim{Limit: divided, Key: "k"}, Claim{Limit: few, Key: "k"})
		require.NoError(t, err)
		require.ErrorAs(t, r[0].Err, new(*cluster.RedisError))
		require.Equal(t, r[0].Allowed, r[1].Allowed)
		passed += int(r[0].Taken)
	}
	require.Equal(t, 2, passed)
	r, err := TakeAll(t.Context(), Claim{Limit: divided, Key: "k"}, Claim{Limit: never, Key: "k"})
	require.NoError(t, err)
	require.False(t, r[0].Allowed || r[1].Allowed)
	one, err := divided.Take(t.Context(), "k", 2)
	require.NoError(t, err)
	require.True(t, one.Allowed, "four of its own, two of which were given to nobody")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = TakeAll(ctx, Claim{Limit: divided, Key: "k"})
	require.ErrorIs(t, err, context.Canceled)
}

func TestTakeAllValidates(t *testing.T) {
	client := deadRedis(t)
	rules := []limiter.Rule{perSecond(1, 5)}
	l := newLimit(t, client, Options{Rules: rules})
	for want, claims := range map[string][]Claim{
		"exact: TakeAll: claims must be 1..64, got 0":                             nil,
		"exact: TakeAll: claims must be 1..64, got 65":                            make([]Claim, 65),
		"exact: TakeAll: claims[1]: Limit must be set, got nil":                   {{Limit: l}, {}},
		`exact: TakeAll: claims[1]: must not be of the key of claims[0], got "k"`: {{Limit: l, Key: "k"}, {Limit: newLimit(t, client, Options{Rules: rules}), Key: "k"}},
		`exact: TakeAll: claims[0]: Limit "s" must not be Stored`:                 {{Limit: newLimit(t, client, Options{Name: "s", Rules: rules, Stored: true})}},
		`exact: TakeAll: claims[1]: Limit "o" must have the Client of the first`:  {{Limit: l}, {Limit: newLimit(t, deadRedis(t), Options{Name: "o", Rules: rules})}},
		"limiter: token bucket: cost 6 exceeds what can ever pass, 5":             {{Limit: l, Cost: 6}},
		"limiter: token bucket: cost must not be negative, got -1":                {{Limit: l, Cost: -1}},
		"limiter is not made": {{Limit: new(Limit)}},
	} {
		_, err := TakeAll(t.Context(), claims...)
		require.ErrorContains(t, err, want)
	}
	_, err := New(&Options{Client: client, Rules: rules, Fallback: cluster.RefuseAll, Slot: "a:b"})
	require.ErrorContains(t, err, "exact: Slot must be printable ASCII without any of {}:, got")
}
