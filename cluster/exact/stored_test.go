package exact

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
)

func TestStoredRule(t *testing.T) {
	client := server(t)
	l := newLimit(t, client, Options{Rules: []limiter.Rule{perSecond(1, 3)}, Stored: true})
	other := newLimit(t, client, Options{Rules: []limiter.Rule{perSecond(1, 99)}, Stored: true})
	hourly := func(n int) limiter.Rule { return limiter.Bucket{Rate: limiter.Per(n, time.Hour)} }
	ctx := t.Context()
	left := func(want, limit int64) {
		t.Helper()
		r, err := other.Take(ctx, "k", 0)
		require.NoError(t, err)
		require.Equal(t, want, r.Remaining)
		require.Equal(t, limit, r.Limit)
	}
	set := func(r limiter.Rule, how Setting, want bool) {
		t.Helper()
		ok, err := l.SetRule(ctx, "k", r, how)
		require.NoError(t, err)
		require.Equal(t, want, ok)
	}
	take := func(l *Limit, n int) bool {
		t.Helper()
		r, err := l.Take(ctx, "k", n)
		require.NoError(t, err)
		require.NoError(t, r.Err)
		return r.Allowed
	}

	left(99, 99)
	r, ok, err := l.StoredRule(ctx, "k")
	require.NoError(t, err)
	require.False(t, ok)
	require.Equal(t, l.Rules()[0], r)

	set(hourly(10), IfAbsent, true)
	set(hourly(77), IfAbsent, false)
	r, ok, err = other.StoredRule(ctx, "k")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, of(hourly(10)), of(r))
	left(10, 10)
	require.True(t, take(other, 3))
	set(hourly(20), AndKeep, true)
	left(17, 20)
	set(hourly(5), AndKeep, true)
	left(2, 5)
	require.True(t, take(l, 2))
	set(hourly(4), AndKeep, true)
	left(0, 4)
	require.False(t, take(l, 1))
	set(hourly(4), AndReset, true)
	left(4, 4)

	_, err = l.Take(ctx, "k", 20)
	require.EqualError(t, err, "limiter: token bucket: cost 20 exceeds what can ever pass, 4")
	_, err = l.Admit(ctx, spillway.Request{Key: "k", Cost: 5})
	var rej *spillway.Rejection
	require.ErrorAs(t, err, &rej)
	require.Equal(t, "cost exceeds limit", rej.Reason)

	require.NoError(t, l.Reset(ctx, "k"))
	left(4, 4)
	require.True(t, take(l, 1))
	for _, k := range client.Keys(ctx, "*").Val() {
		require.Positive(t, client.PTTL(ctx, k).Val(), k)
	}
	_, err = l.SetRule(ctx, "k", nil, IfAbsent)
	require.Error(t, err)
	set(nil, AndKeep, true)
	_, ok, err = l.StoredRule(ctx, "k")
	require.NoError(t, err)
	require.False(t, ok)
	set(nil, AndReset, true)
	require.Empty(t, client.Keys(ctx, "*").Val())
	left(99, 99)
}

// A stored rule goes when nobody uses it, and stays while somebody does.
func TestStoredRuleIsKeptAlive(t *testing.T) {
	client := server(t)
	l := newLimit(t, client, Options{Rules: []limiter.Rule{perSecond(1, 3)}, Stored: true, KeepAlive: time.Hour})
	_, err := l.SetRule(t.Context(), "k", perSecond(5, 5), IfAbsent)
	require.NoError(t, err)
	key := l.keys("k")[1]
	require.InDelta(t, time.Hour, client.PTTL(t.Context(), key).Val(), float64(time.Minute))
	require.NoError(t, client.PExpire(t.Context(), key, time.Minute).Err())
	_, err = l.Take(t.Context(), "k", 0)
	require.NoError(t, err)
	require.LessOrEqual(t, client.PTTL(t.Context(), key).Val(), time.Minute)
	_, err = l.Take(t.Context(), "k", 1)
	require.NoError(t, err)
	require.InDelta(t, time.Hour, client.PTTL(t.Context(), key).Val(), float64(time.Minute))

	for want, c := range map[string]struct {
		rule limiter.Rule
		how  Setting
	}{
		"KeepAlive must be at least":        {limiter.Bucket{Rate: limiter.Per(1, 2*time.Hour)}, AndKeep},
		"setting must be one":               {perSecond(1, 1), "other"},
		"rule must be of the kind of":       {limiter.SlidingLog{Limit: 1, Window: time.Second}, AndKeep},
		"Burst must be at least 1, got":     {perSecond(1, -1), AndKeep},
		"token bucket: Rate.Tokens must be": {limiter.Bucket{Rate: limiter.Per(0, time.Second), Burst: 1}, AndKeep},
	} {
		_, err := l.SetRule(t.Context(), "k", c.rule, c.how)
		require.ErrorContains(t, err, "exact: SetRule: ")
		require.ErrorContains(t, err, want)
	}
	_, err = newLimit(t, client, Options{Rules: []limiter.Rule{perSecond(1, 3)}}).SetRule(t.Context(), "k", perSecond(1, 1), AndKeep)
	require.ErrorContains(t, err, "must be made with Stored")
}

// A process that remembers for a day that a key is used up hears of a greater rule nevertheless.
func TestAStoredRuleReachesWhoRemembersARefusal(t *testing.T) {
	client := server(t)
	day := func(n int) limiter.Rule {
		return limiter.FixedWindow{Limit: n, Period: 24 * time.Hour}
	}
	o := Options{Name: "plan", Rules: []limiter.Rule{day(3)}, Stored: true}
	mine, other := newLimit(t, client, o), newLimit(t, client, o)
	for range 4 {
		_, err := mine.Take(t.Context(), "k", 1)
		require.NoError(t, err)
	}
	ok, err := other.SetRule(t.Context(), "k", day(10), AndKeep)
	require.NoError(t, err)
	require.True(t, ok)
	require.Eventually(t, func() bool {
		r, err := mine.Take(t.Context(), "k", 1)
		return err == nil && r.Allowed && r.Limit == 10
	}, 20*time.Second, 50*time.Millisecond)
}

func TestPerClient(t *testing.T) {
	client := server(t)
	for _, name := range []string{"a", "b"} {
		l := newLimit(t, client, Options{Rules: []limiter.Rule{perSecond(1, 2)}, PerClient: name, Stored: true})
		ok, err := l.SetRule(t.Context(), "k", hourlyBurst(3), IfAbsent)
		require.NoError(t, err)
		require.Equal(t, name == "a", ok, "they share the rule")
		for i := range 4 {
			r, err := l.Take(t.Context(), "k", 1)
			require.NoError(t, err)
			require.Equal(t, i < 3, r.Allowed, "they do not share the tokens")
		}
	}
}

func hourlyBurst(n int) limiter.Rule {
	return limiter.Bucket{Rate: limiter.Per(1, time.Hour), Burst: n}
}

// Stored windows and logs follow their rule, and 8 clients get no more than it says.
func TestStoredKinds(t *testing.T) {
	client := server(t)
	for _, c := range []struct{ own, stored limiter.Rule }{
		{
			limiter.FixedWindow{Limit: 1, Period: time.Second},
			limiter.FixedWindow{Limit: 50, Period: time.Hour},
		},
		{
			limiter.SlidingWindow{Limit: 1, Window: time.Second},
			limiter.SlidingWindow{Limit: 50, Window: time.Hour, Buckets: 12},
		},
		{limiter.SlidingLog{Limit: 1, Window: time.Second}, limiter.SlidingLog{Limit: 50, Window: time.Hour}},
	} {
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			l := newLimit(t, client, Options{Rules: []limiter.Rule{c.own}, Stored: true, Name: of(c.own).name})
			wg.Go(func() {
				if _, err := l.SetRule(t.Context(), "k", c.stored, IfAbsent); err != nil {
					t.Error(err)
				}
				for range 10 {
					r, err := l.Take(t.Context(), "k", 1)
					if err != nil || r.Err != nil {
						t.Errorf("%v, %v", err, r.Err)
					}
					admitted.Add(r.Taken)
				}
			})
		}
		wg.Wait()
		require.Equal(t, int64(50), admitted.Load(), c.stored)
	}
}
