package exact

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/race"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/internal/rejections"
	"github.com/spillway-go/spillway/limiter"
)

// What Redis refused is refused from memory until the time that it named; other keys are not.
func TestFloodAsksRedisOnce(t *testing.T) {
	client := server(t)
	l := newLimit(t, client, Options{Rules: []limiter.Rule{limiter.FixedWindow{Limit: 3, Period: time.Hour}}})
	var last Result
	for range 4 {
		r, err := l.Take(t.Context(), "k", 1)
		require.NoError(t, err)
		if r.Allowed {
			last = r
		}
	}
	before := redistest.CommandCalls(t, client, "evalsha")
	for range 1000 {
		r, err := l.Take(t.Context(), "k", 1)
		require.NoError(t, err)
		require.Equal(t, cluster.FromMemory, r.Source)
		require.False(t, r.Allowed)
		require.InDelta(t, time.Hour, r.RetryAfter, float64(time.Minute))
		require.Equal(t, "fixed window", r.Rule)
	}
	up, err := l.TakeUpTo(t.Context(), "k", 7)
	require.NoError(t, err)
	require.Equal(t, Result{Result: cluster.Result{State: up.State, Rule: up.Rule, RetryAfter: up.RetryAfter, Source: cluster.FromMemory}}, up)
	require.Equal(t, before, redistest.CommandCalls(t, client, "evalsha"))
	require.Equal(t, int64(1001), l.Stats().RefusedBy[cluster.FromMemory])

	r, err := l.Take(t.Context(), "other", 1)
	require.NoError(t, err)
	require.True(t, r.Allowed)
	require.NoError(t, l.Refund(t.Context(), "k", &last, 1))
	r, err = l.Take(t.Context(), "k", 1)
	require.NoError(t, err)
	require.True(t, r.Allowed, "a refund opens it again")
}

// That there is no room for many says nothing of few.
func TestMemoryKnowsTheCost(t *testing.T) {
	l := newLimit(t, server(t), Options{Rules: []limiter.Rule{limiter.FixedWindow{Limit: 10, Period: time.Hour}}})
	for _, c := range []struct {
		n      int
		ok     bool
		source cluster.Source
	}{{8, true, cluster.FromRedis}, {5, false, cluster.FromRedis}, {5, false, cluster.FromMemory}, {6, false, cluster.FromMemory}, {2, true, cluster.FromRedis}, {1, false, cluster.FromRedis}, {1, false, cluster.FromMemory}} {
		r, err := l.Take(t.Context(), "k", c.n)
		require.NoError(t, err)
		require.Equal(t, c.ok, r.Allowed, c)
		require.Equal(t, c.source, r.Source, c)
	}
}

func TestRecheck(t *testing.T) {
	client := server(t)
	rules := []limiter.Rule{limiter.FixedWindow{Limit: 1, Period: time.Hour}}
	l := newLimit(t, client, Options{Rules: rules, CacheTTL: ms})
	other := newLimit(t, client, Options{Rules: rules})
	for range 2 {
		_, err := l.Take(t.Context(), "k", 1)
		require.NoError(t, err)
	}
	require.NoError(t, other.Reset(t.Context(), "k"))
	require.Eventually(t, func() bool {
		r, err := l.Take(t.Context(), "k", 1)
		return err == nil && r.Allowed
	}, 10*time.Second, ms)
}

func TestMemoryIsBounded(t *testing.T) {
	m := newMemory(64)
	require.Len(t, m.places, 16)
	now := time.Now()
	for i := range 10_000 {
		m.remember(&answer{key: strconv.Itoa(i), asked: now}, 0)
	}
	known := 0
	for i := range 10_000 {
		if m.recall(strconv.Itoa(i)) != nil {
			known++
		}
	}
	require.Equal(t, 64, known)

	// A refusal that holds is kept before answers that hold nothing, and a stale one is not taken up.
	m = newMemory(1)
	m.remember(&answer{key: "refused", asked: now, cost: 1, until: now.Add(time.Hour)}, 0)
	for i := range 100 {
		m.remember(&answer{key: strconv.Itoa(i), asked: now}, 0)
	}
	require.True(t, m.recall("refused").refuses(1, now))
	version := m.version("refused")
	m.forget("refused")
	m.remember(&answer{key: "refused", cost: 1, until: now.Add(time.Hour)}, version)
	require.Nil(t, m.recall("refused"))
}

func TestMemoryStateAges(t *testing.T) {
	now := time.Now()
	a := &answer{asked: now, states: []limiter.State{{Limit: 10, Remaining: 4, NextIn: 100 * ms, FullIn: 600 * ms}}}
	require.Equal(t, limiter.State{Limit: 10, Remaining: 4, FullIn: 400 * ms}, a.stateAt(now.Add(200*ms), 0))
	require.Equal(t, limiter.State{Limit: 10, Remaining: 10}, a.stateAt(now.Add(600*ms), 0))
}

func TestPolicy(t *testing.T) {
	client := server(t)
	l := newLimit(t, client, Options{Rules: []limiter.Rule{
		limiter.Bucket{Rate: limiter.Per(1, time.Hour), Burst: 5, Name: "per tenant"},
	}})
	full, err := limiter.New(limiter.Concurrency{Limit: 2})
	require.NoError(t, err)
	gate := spillway.New(l, full)
	r := spillway.Request{Key: "k", Cost: 2}
	require.Equal(t, spillway.Quota{Name: "per tenant", Limit: 5, Remaining: 5, Window: 5 * time.Hour}, l.Quota(time.Now(), r))

	permit, err := gate.Enter(t.Context(), r)
	require.NoError(t, err)
	left := l.Quota(time.Now(), r)
	require.Equal(t, int64(5), left.Limit)
	require.Equal(t, int64(3), left.Remaining)
	require.InDelta(t, time.Hour, left.Reset, float64(time.Minute))

	_, err = gate.Enter(t.Context(), r)
	var rej *spillway.Rejection
	require.ErrorAs(t, err, &rej)
	require.Equal(t, "concurrency", rej.Policy)
	p, err := l.Take(t.Context(), "k", 0)
	require.NoError(t, err)
	require.Equal(t, int64(3), p.Remaining, "what the second request took came back")
	require.Equal(t, int64(1), l.Stats().Returned)
	permit.Done(spillway.Success)
	p, err = l.Take(t.Context(), "k", 0)
	require.NoError(t, err)
	require.Equal(t, int64(3), p.Remaining, "what was served did not")

	permit, err = gate.Enter(t.Context(), r)
	require.NoError(t, err)
	permit.Done(spillway.Success)
	for range 3 {
		_, err = gate.Enter(t.Context(), r)
		require.ErrorAs(t, err, &rej)
		require.Equal(t, "per tenant", rej.Policy)
		require.Equal(t, "rate exceeded", rej.Reason)
		require.True(t, rej.OverQuota)
		require.InDelta(t, time.Hour, rej.RetryAfter, float64(5*time.Minute))
	}
	_, err = l.Admit(t.Context(), spillway.Request{Key: "k", Cost: -1})
	require.ErrorAs(t, err, &rej)
	require.Equal(t, "cost is negative", rej.Reason)
}

func TestClosedIsNotTheCallersFault(t *testing.T) {
	l := newLimit(t, deadRedis(t), Options{Rules: []limiter.Rule{perSecond(1, 1)}, Fallback: cluster.RefuseAll})
	_, err := l.Admit(t.Context(), spillway.Request{Key: "k"})
	var rej *spillway.Rejection
	require.ErrorAs(t, err, &rej)
	require.Equal(t, "redis unavailable", rej.Reason)
	require.False(t, rej.OverQuota)
	require.ErrorAs(t, l.Wait(t.Context(), "k", 1), &rej)
	require.Equal(t, "redis unavailable", rej.Reason)
}

// A refusal from memory costs no allocation, like those of limits that ask nobody.
func TestRefusalsDoNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: allocations are not counted under the race detector")
	}
	l := newLimit(t, server(t), Options{Rules: []limiter.Rule{limiter.Bucket{Rate: limiter.Per(1, time.Hour)}}})
	r := spillway.Request{Key: "k"}
	for range 2 {
		_, _ = l.Admit(t.Context(), r)
	}
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, err := l.Admit(ctx, r); err == nil {
			t.Fatal("admitted")
		}
	}))
}

func TestWait(t *testing.T) {
	client := server(t)
	l := newLimit(t, client, Options{Rules: []limiter.Rule{perSecond(100, 1)}})
	begin := time.Now()
	var wg sync.WaitGroup
	for range 11 {
		wg.Go(func() {
			if err := l.Wait(t.Context(), "k", 1); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.GreaterOrEqual(t, time.Since(begin), 100*ms)
	require.Empty(t, l.turns)
	require.Less(t, redistest.CommandCalls(t, client, "evalsha"), int64(60), "only one of those who wait asks Redis")
	dead := newLimit(t, deadRedis(t), Options{Rules: []limiter.Rule{perSecond(100, 1)}, Fallback: cluster.RefuseAll})
	require.NoError(t, dead.Wait(t.Context(), "k", 0), "it asks for nothing")
	require.Error(t, dead.Wait(t.Context(), "k", 1))
}

func TestWaitGivesUp(t *testing.T) {
	l := newLimit(t, server(t), Options{Rules: []limiter.Rule{limiter.Bucket{Rate: limiter.Per(1, time.Hour)}}})
	require.NoError(t, l.Wait(t.Context(), "k", 1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var rej *spillway.Rejection
	require.ErrorAs(t, l.Wait(ctx, "k", 1), &rej)
	require.Equal(t, "deadline too near", rej.Reason)

	ctx, cancel = context.WithCancel(t.Context())
	errs := make(chan error)
	for range 3 {
		go func() { errs <- l.Wait(ctx, "k", 1) }()
	}
	cancel()
	for range 3 {
		require.ErrorIs(t, <-errs, context.Canceled)
	}
	require.Empty(t, l.turns)
	require.ErrorIs(t, l.Wait(ctx, "k", 1), context.Canceled)
}

func TestRejectionsAreSharedByWait(t *testing.T) {
	r := rejections.New("p", "r", true)
	require.Same(t, r.After(time.Second), r.After(time.Second-1))
	require.Equal(t, time.Second, r.After(time.Second).RetryAfter)
	require.Zero(t, r.Unknown().RetryAfter)
}

func TestNearLimit(t *testing.T) {
	l := newLimit(t, server(t), Options{Rules: []limiter.Rule{limiter.FixedWindow{Limit: 10, Period: time.Hour}}})
	for range 12 {
		_, err := l.Take(t.Context(), "k", 1)
		require.NoError(t, err)
	}
	s := l.Stats()
	require.Equal(t, int64(2), s.Near)
	require.Equal(t, int64(10), s.Admitted)
	require.Equal(t, int64(2), s.Refused)
	require.Equal(t, "limit", s.Name)
}

// Header fields can tell of every rule, before and after the first answer.
func TestQuotas(t *testing.T) {
	l := newLimit(t, server(t), Options{Rules: []limiter.Rule{
		limiter.Bucket{Rate: limiter.Per(1, time.Hour), Burst: 5, Name: "burst"},
		limiter.FixedWindow{Limit: 100, Period: time.Hour, Name: "hourly"},
	}})
	r := spillway.Request{Key: "k"}
	left := func() (all []int64) {
		for _, q := range l.Quotas() {
			left := q(time.Now(), r)
			require.LessOrEqual(t, left.Remaining, left.Limit, left.Name)
			all = append(all, left.Remaining)
		}
		return all
	}
	require.Equal(t, []int64{5, 100}, left())
	_, err := l.Take(t.Context(), "k", 3)
	require.NoError(t, err)
	require.Equal(t, []int64{2, 97}, left())
	q := l.Quotas()[1](time.Now(), r)
	require.Equal(t, "hourly", q.Name)
	require.Equal(t, int64(100), q.Limit)
	require.Equal(t, time.Hour, q.Window)
	require.InDelta(t, time.Hour, q.Reset, float64(time.Minute))
	q = l.Quota(time.Now(), r)
	require.Equal(t, "burst", q.Name, "it has the smaller part left")
	require.Equal(t, int64(5), q.Limit)
	require.Equal(t, int64(2), q.Remaining)
}

// Of two rules one has nothing left for a moment, and the other lacks some for an hour: few pass again after the moment.
func TestMemoryOfWhatWasTakenInPart(t *testing.T) {
	client := server(t)
	l := newLimit(t, client, Options{Rules: []limiter.Rule{
		perSecond(1000, 3), limiter.FixedWindow{Limit: 5, Period: time.Hour},
	}})
	r, err := l.TakeUpTo(t.Context(), "k", 9)
	require.NoError(t, err)
	require.Equal(t, int64(3), r.Taken)
	require.Equal(t, "fixed window", r.Rule)
	require.Eventually(t, func() bool {
		r, err := l.Take(t.Context(), "k", 1)
		return err == nil && r.Allowed
	}, 10*time.Second, ms)
}
