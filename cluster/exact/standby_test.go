package exact

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

// deadRedis is a client of a server that is not there.
func deadRedis(t *testing.T) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, DialerRetries: 1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestOnLoss(t *testing.T) {
	rules := []limiter.Rule{perSecond(1, 12), limiter.FixedWindow{Limit: 16, Period: time.Hour}}
	for _, c := range []struct {
		choice   cluster.Fallback
		source   cluster.Source
		admitted int
	}{
		{cluster.Divide, cluster.FromDivide, 4}, {cluster.AllowAll, cluster.FromNobody, 20}, {cluster.RefuseAll, cluster.FromNobody, 0},
	} {
		t.Run(c.choice.String(), func(t *testing.T) {
			l := newLimit(t, deadRedis(t), Options{Rules: rules, Fallback: c.choice, Nodes: 3})
			admitted := 0
			for range 20 {
				r, err := l.Take(t.Context(), "k", 1)
				require.NoError(t, err)
				require.ErrorAs(t, r.Err, new(*cluster.RedisError))
				require.Equal(t, c.source, r.Source)
				if r.Allowed {
					admitted++
				}
			}
			require.Equal(t, c.admitted, admitted)
			s := l.Stats()
			require.Equal(t, int64(c.admitted), s.AdmittedBy[c.source])
			require.Equal(t, int64(20-c.admitted), s.RefusedBy[c.source])
			require.Equal(t, int64(20), s.Unanswered)
			sum := int64(0)
			for _, r := range s.ByReason {
				require.Equal(t, c.choice == cluster.RefuseAll, r.Reason == "redis unavailable")
				sum += r.Count
			}
			require.Equal(t, s.Refused, sum)
			require.NotEqual(t, breaker.Closed, s.Breaker)
			require.Equal(t, int64(20), s.Admitted+s.Refused)
		})
	}
}

// Tokens of a share come back to the window in which they were taken, or nowhere.
func TestDivideKeepsWindowsApart(t *testing.T) {
	client := deadRedis(t)
	for name, give := range map[string]func(t *testing.T, l *Limit, r *Result, n int){
		"Refund": func(t *testing.T, l *Limit, r *Result, n int) { require.NoError(t, l.Refund(t.Context(), "k", r, n)) },
		"Done": func(_ *testing.T, l *Limit, r *Result, n int) {
			l.Done(spillway.Request{Key: "k", Cost: n}, ticketOf(r), spillway.Result{Outcome: spillway.Refused})
		},
	} {
		for _, rule := range []limiter.Rule{
			limiter.FixedWindow{Limit: 10, Period: time.Minute},
			limiter.SlidingLog{Limit: 10, Window: time.Minute},
			limiter.SlidingWindow{Limit: 10, Window: time.Minute},
			limiter.Bucket{Rate: limiter.Per(10, time.Minute), Burst: 10},
		} {
			t.Run(name+" "+of(rule).name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLimit(t, client, Options{Rules: []limiter.Rule{rule}, Nodes: 1})
					take := func(n int64) Result {
						r, err := l.onLoss(t.Context(), "k", n, allTokens, &cluster.RedisError{Reason: "breaker open"})
						require.NoError(t, err)
						require.Equal(t, cluster.FromDivide, r.Source)
						return r
					}
					first := take(10)
					require.True(t, first.Allowed)
					give(t, l, &first, 4)
					second := take(4)
					require.True(t, second.Allowed, "at once they are there again")
					time.Sleep(2 * time.Minute)
					require.True(t, take(10).Allowed)
					give(t, l, &first, 6)
					give(t, l, &second, 4)
					require.False(t, take(1).Allowed, "time has given them back")
				})
			})
		}
	}
}

func TestDivideGivesAllOrNone(t *testing.T) {
	l := newLimit(t, deadRedis(t), Options{Nodes: 2, Rules: []limiter.Rule{
		limiter.FixedWindow{Limit: 20, Period: time.Hour}, limiter.FixedWindow{Limit: 8, Period: time.Hour},
	}})
	take := func(n int) Result {
		r, err := l.Take(t.Context(), "k", n)
		require.NoError(t, err)
		return r
	}
	require.False(t, take(5).Allowed, "more than this process's share of the second rule")
	require.True(t, take(4).Allowed)
	r := take(1)
	require.False(t, r.Allowed)
	require.Equal(t, limiter.State{Limit: 4, NextIn: r.NextIn, FullIn: r.FullIn}, r.State)
	require.Positive(t, r.RetryAfter)
	require.Equal(t, int64(6), l.loss.shares[0].PeekAt(time.Now(), "k").Remaining, "the first rule got back what the second refused")

	up, err := l.TakeUpTo(t.Context(), "other", 9)
	require.NoError(t, err)
	require.Equal(t, int64(4), up.Taken)
	require.False(t, up.Allowed)

	tk, err := l.Admit(t.Context(), spillway.Request{Key: "third", Cost: 3})
	require.NoError(t, err)
	l.Done(spillway.Request{Key: "third", Cost: 3}, tk, spillway.Result{Outcome: spillway.Refused})
	require.Equal(t, int64(4), l.loss.shares[1].PeekAt(time.Now(), "third").Remaining)
}

// Redis goes, comes back, and is asked again without anybody doing anything.
func TestRedisComesBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := newLimit(t, redistest.NewClient(t, s.Addr()), Options{
		Rules: []limiter.Rule{perSecond(1, 100)}, Fallback: cluster.AllowAll, Timeout: time.Second, Breaker: &breaker.Options{Consecutive: 1, OpenFor: 10 * ms, MaxOpen: 20 * ms},
	})
	take := func() Result {
		r, err := l.Take(t.Context(), "k", 1)
		require.NoError(t, err)
		require.True(t, r.Allowed)
		return r
	}
	require.Equal(t, cluster.FromRedis, take().Source)
	s.Kill()
	require.Equal(t, cluster.FromNobody, take().Source)
	s.Restart()
	require.Eventually(t, func() bool { return take().Source == cluster.FromRedis }, 20*time.Second, ms)
}

// Redis takes what it is sent and says nothing: callers get an answer in time, and their number does not grow with the time
// that this lasts.
func TestBlackHole(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Silent(t), ContextTimeoutEnabled: true, PoolSize: 8})
	t.Cleanup(func() { _ = client.Close() })
	l := newLimit(t, client, Options{Rules: []limiter.Rule{perSecond(1, 100)}, Nodes: 4, Timeout: 20 * ms})
	goroutines := runtime.NumGoroutine()
	var slowest atomic.Int64
	var wg sync.WaitGroup
	const callers = 16
	for range callers {
		wg.Go(func() {
			for range 200 {
				begin := time.Now()
				r, err := l.Take(t.Context(), "k", 1)
				if err != nil || r.Source != cluster.FromDivide {
					t.Errorf("%+v, %v", r, err)
				}
				for d := int64(time.Since(begin)); ; {
					if old := slowest.Load(); d <= old || slowest.CompareAndSwap(old, d) {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+2*callers)
	require.Less(t, time.Duration(slowest.Load()), 2*time.Second)
	require.NotEqual(t, breaker.Closed, l.Stats().Breaker)
}

// An answer that is lost behind a call that was made charges once.
func TestLostReplyChargesOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := redistest.NewProxy(t, s.Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true, MaxRetries: 5})
	t.Cleanup(func() { _ = client.Close() })
	rules := []limiter.Rule{limiter.FixedWindow{Limit: 100, Period: time.Hour}}
	l := newLimit(t, client, Options{Rules: rules, Fallback: cluster.AllowAll, Timeout: time.Second})
	_, err := l.Take(t.Context(), "k", 1)
	require.NoError(t, err)
	proxy.DropReplies(1)
	r, err := l.Take(t.Context(), "k", 10)
	require.NoError(t, err)
	require.Equal(t, cluster.FromNobody, r.Source)
	direct := newLimit(t, redistest.NewClient(t, s.Addr()), Options{Rules: rules})
	r, err = direct.Take(t.Context(), "k", 0)
	require.NoError(t, err)
	require.Equal(t, int64(89), r.Remaining)
}

func TestKeyOfAnotherType(t *testing.T) {
	client := server(t)
	for _, rule := range []limiter.Rule{
		perSecond(1, 5), limiter.FixedWindow{Limit: 5, Period: time.Minute},
		limiter.FixedWindow{Limit: 5, Calendar: limiter.EveryHour},
		limiter.SlidingWindow{Limit: 5, Window: time.Minute}, limiter.SlidingLog{Limit: 5, Window: time.Minute},
	} {
		for _, kind := range []string{"list", "text"} {
			t.Run(of(rule).name+" "+kind, func(t *testing.T) {
				l := newLimit(t, client, Options{Rules: []limiter.Rule{perSecond(1, 7), rule}, Fallback: cluster.AllowAll})
				require.NoError(t, client.FlushAll(t.Context()).Err())
				if kind == "list" {
					client.RPush(t.Context(), l.keys("k")[1], 1)
				} else {
					client.Set(t.Context(), l.keys("k")[1], "text", time.Hour)
				}
				for range 10 {
					r, err := l.Take(t.Context(), "k", 1)
					require.NoError(t, err)
					require.Equal(t, cluster.FromNobody, r.Source)
					redistest.RequireReason(t, r.Err, "wrong type of key")
				}
				require.Equal(t, breaker.Closed, l.Stats().Breaker, "other keys are fine")
				require.Equal(t, int64(1), client.DBSize(t.Context()).Val(), "the first rule was charged")
				redistest.RequireReason(t, l.Refund(t.Context(), "k", &Result{Result: cluster.Result{Taken: 1}}, 1), "wrong type of key")
			})
		}
	}
}

// 32 callers of one key: as many pass as there are tokens, and none gets an error.
func TestHotKey(t *testing.T) {
	client := server(t)
	for _, rule := range []limiter.Rule{
		limiter.Bucket{Rate: limiter.Per(1, time.Hour), Burst: 200},
		limiter.SlidingLog{Limit: 200, Window: time.Hour},
		limiter.SlidingWindow{Limit: 200, Window: time.Hour},
	} {
		l := newLimit(t, client, Options{Rules: []limiter.Rule{rule}, Name: of(rule).name})
		flushing, stop := context.WithCancel(t.Context())
		var flusher, wg sync.WaitGroup
		flusher.Go(func() {
			for flushing.Err() == nil {
				client.ScriptFlush(flushing)
			}
		})
		var admitted atomic.Int64
		for range 32 {
			wg.Go(func() {
				for range 20 {
					r, err := l.Take(t.Context(), "k", 1)
					if err != nil || r.Err != nil {
						t.Errorf("%v, %v", err, r.Err)
					}
					admitted.Add(r.Taken)
				}
			})
		}
		wg.Wait()
		stop()
		flusher.Wait()
		require.Equal(t, int64(200), admitted.Load(), of(rule).name)
	}
}

func TestTheCallerGivesUp(t *testing.T) {
	l := newLimit(t, redistest.NewClient(t, redistest.Silent(t)), Options{Rules: []limiter.Rule{perSecond(1, 5)}, Fallback: cluster.AllowAll, Timeout: time.Minute})
	ctx, cancel := context.WithTimeout(t.Context(), 20*ms)
	defer cancel()
	_, err := l.Take(ctx, "k", 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = l.Admit(ctx, spillway.Request{Key: "k"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, l.Wait(ctx, "k", 1), context.DeadlineExceeded)
}

// One who waits while Redis is lost gets tokens from the share, and waits for Redis if that is never enough.
func TestWaitWithoutRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := newLimit(t, redistest.NewClient(t, s.Addr()), Options{
		Rules: []limiter.Rule{perSecond(100, 4)}, Nodes: 2, Timeout: time.Second, Breaker: &breaker.Options{Consecutive: 1, OpenFor: 10 * ms, MaxOpen: 20 * ms},
	})
	s.Kill()
	require.NoError(t, l.Wait(t.Context(), "k", 2))
	require.NoError(t, l.Wait(t.Context(), "k", 2))
	require.Zero(t, l.Stats().AdmittedBy[cluster.FromRedis])
	done := make(chan error)
	go func() { done <- l.Wait(t.Context(), "k", 4) }()
	s.Restart()
	require.NoError(t, <-done)
	require.Equal(t, int64(1), l.Stats().AdmittedBy[cluster.FromRedis])
}

// No tokens need no Redis.
func TestWaitForNothing(t *testing.T) {
	l := newLimit(t, redistest.NewClient(t, "127.0.0.1:1"), Options{Rules: []limiter.Rule{perSecond(1, 1)}, Timeout: 100 * ms})
	require.NoError(t, l.Wait(t.Context(), "k", 0))
	require.Error(t, l.Wait(t.Context(), "k", 1))
}

// A reply that no script of this version gives is an error, whatever its length.
func TestReplyThatIsTooShort(t *testing.T) {
	t.Parallel()
	l := newLimit(t, server(t), Options{Rules: []limiter.Rule{perSecond(1, 1)}})
	for _, reply := range []string{"{}", "{1}", "{1, 2}", "{1, 2, 3}", "{1, 2, 3, 4}"} {
		_, err := l.exchange(t.Context(), "k", 1, allTokens, 0, 0)
		require.NoError(t, err)
		short := *l.taking
		l.taking = call.NewScript("return " + reply)
		_, err = l.exchange(t.Context(), "k", 1, allTokens, 0, 0)
		redistest.RequireReason(t, err, "script failed")
		l.taking = &short
	}
}
