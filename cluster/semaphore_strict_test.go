package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster/internal/race"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

// holdAll takes a permit of so many keys, by so many callers at once, and returns when it has them all.
func holdAll(t *testing.T, s *Semaphore, keys, callers int) {
	t.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := next.Add(1); i <= int64(keys); i = next.Add(1) {
				for tries := 0; ; tries++ {
					if _, err := s.TryAcquire(context.Background(), "k"+strconv.FormatInt(i, 10)); err == nil || tries == 100 {
						break
					}
					pause(time.Duration(rand.Int64N(int64(time.Second)))) // sooner, the callers would use up the CPU
				}
			}
		})
	}
	all.Wait()
}

// A Redis that is far away renews many leases: it is round trips that count. One call for each key, 8 at a time, would take
// 15 s for what lasts 5.
func TestSemaphoreRenewsManyKeysFarAway(t *testing.T) {
	const keys = 1200
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 64})
	t.Cleanup(func() { _ = client.Close() })
	s, err := NewSemaphore(&SemaphoreOptions{Client: client, Limit: 1, TTL: 5 * time.Second, Timeout: 2 * time.Second})
	require.NoError(t, err)
	defer s.Close()
	holdAll(t, s, keys, 256)
	require.Equal(t, keys, s.Stats().InFlight)
	proxy.SetLatency(100 * time.Millisecond)
	lost := s.Stats().Lapsed // by a machine that was busy
	pause(7 * time.Second)
	require.Less(t, s.Stats().Lapsed-lost, int64(keys/10), "without pipelines it is all of them")
}

// manyAtOnce takes a permit of so many keys at once, with a client that has no connection yet, from a Redis that is 5 ms away. It keeps
// them for some TTLs: none is lost, from the first to the last moment.
func manyAtOnce(t *testing.T, keys, pool int, ttl time.Duration) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	proxy.SetLatency(5 * time.Millisecond)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: pool})
	t.Cleanup(func() { _ = client.Close() })
	s, err := NewSemaphore(&SemaphoreOptions{Client: client, Limit: 1, TTL: ttl})
	require.NoError(t, err)
	defer s.Close()
	began := time.Now()
	holdAll(t, s, keys, keys)
	t.Logf("acquired in %v: %+v", time.Since(began), s.Stats())
	pause(3 * ttl)
	t.Logf("three TTLs later: %+v", s.Stats())
	require.Equal(t, keys, s.Stats().InFlight)
	require.Zero(t, s.Stats().Lapsed)
}

// The renewals of so many keys are most of what Redis can do on one core, so this is for a machine that has nothing else to do:
// SPILLWAY_LONG=1.
func TestSemaphoreTenThousandKeys(t *testing.T) {
	if os.Getenv("SPILLWAY_LONG") == "" || race.Enabled {
		t.Skip("SKIPPED: real load, with SPILLWAY_LONG=1 and without the race detector")
	}
	manyAtOnce(t, 10_000, 64, time.Second)
}

// Renewals wait for nobody who wants a permit: neither where callers have all the calls that there may be, nor where those open the
// breaker, nor for the answers that take longer than callers would wait.
func TestSemaphoreRenewsWhateverCallersDo(t *testing.T) {
	const keys = 300
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 8})
	t.Cleanup(func() { _ = client.Close() })
	s, err := NewSemaphore(&SemaphoreOptions{Client: client, Limit: 1, TTL: 3 * time.Second})
	require.NoError(t, err)
	defer s.Close()
	holdAll(t, s, keys, 8)
	require.Equal(t, keys, s.Stats().InFlight)
	require.Equal(t, 6, cap(s.conn.flights), "three quarters of the connections")
	for range cap(s.conn.flights) {
		s.conn.flights <- struct{}{}
	}
	proxy.SetLatency(200 * time.Millisecond) // DefaultTimeout is 100 ms
	pause(4 * time.Second)
	require.NoError(t, s.conn.brk.SetMode(breaker.ForcedOpen))
	pause(4 * time.Second)
	require.Zero(t, s.Stats().Lapsed)
	proxy.Heal()
	for range cap(s.conn.flights) {
		<-s.conn.flights
	}
}

// userOf returns a client of a user with these rights and no others.
func userOf(t *testing.T, s *redistest.Server, rights ...any) *redis.Client {
	s.Do(append([]any{"ACL", "SETUSER", "app", "reset", "on", ">secret"}, rights...)...)
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "app", Password: "secret"})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A user who may not publish releases permits, and those who wait poll.
func TestSemaphoreWithoutTheRightToPublish(t *testing.T) {
	for name, rights := range map[string][]any{
		"no command":  {"~*", "&*", "+@all", "-publish"},
		"no channels": {"~*", "resetchannels", "+@all"},
	} {
		t.Run(name, func(t *testing.T) {
			client := userOf(t, redistest.Start(t), rights...)
			s, err := NewSemaphore(&SemaphoreOptions{Client: client, Limit: 1, Timeout: 5 * time.Second})
			require.NoError(t, err)
			defer s.Close()
			for range 8 { // more than open the breaker
				held, err := s.Acquire(t.Context(), "k")
				require.NoError(t, err)
				got := make(chan error, 1)
				go func() {
					next, err := s.Acquire(t.Context(), "k")
					if err == nil {
						err = next.Release()
					}
					got <- err
				}()
				await(t, 10*time.Second, func() bool {
					_, waiting, err := s.Peek(t.Context(), "k")
					return err == nil && waiting == 1
				})
				require.NoError(t, held.Release())
				require.NoError(t, <-got)
			}
			require.Equal(t, breaker.Closed, s.conn.brk.State())
		})
	}
}

// aclOfDocs returns the rights that docs/cluster.md asks for.
func aclOfDocs(t *testing.T) []any {
	text, err := os.ReadFile("../docs/cluster.md")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(text), "ACL SETUSER app on >")
	require.True(t, found)
	line, _, _ := strings.Cut(after, "\n```")
	var rights []any
	for _, word := range strings.Fields(strings.ReplaceAll(line, "\\\n", " "))[1:] {
		rights = append(rights, word)
	}
	return rights
}

// Everything works with the rights that the documentation asks for.
func TestRightsOfTheDocumentation(t *testing.T) {
	client := userOf(t, redistest.Start(t), aclOfDocs(t)...)
	rules := []limiter.Rule{
		perSecond(100, 100), limiter.FixedWindow{Limit: 100, Calendar: limiter.EveryDay},
		limiter.SlidingWindow{Limit: 100, Window: time.Minute}, limiter.SlidingLog{Limit: 100, Window: time.Minute},
	}
	for _, l := range []*Limit{
		newLimit(t, client, LimitOptions{Name: "all", Rules: rules}),
		newLimit(t, client, LimitOptions{Name: "stored", Rules: rules[:1], Stored: true}),
	} {
		for range 3 {
			r, err := l.Take(t.Context(), "k", 5)
			require.NoError(t, err)
			require.NoError(t, r.Err)
			require.NoError(t, l.Refund(t.Context(), "k", &r, 2))
		}
		if l.stored {
			_, err := l.SetRule(t.Context(), "k", perSecond(50, 50), AndReset)
			require.NoError(t, err)
			_, _, err = l.StoredRule(t.Context(), "k")
			require.NoError(t, err)
		}
		require.NoError(t, l.Delete(t.Context(), "k"))
	}
	s, err := NewSemaphore(&SemaphoreOptions{Client: client, Limit: 2, TTL: 300 * time.Millisecond, Timeout: 5 * time.Second})
	require.NoError(t, err)
	defer s.Close()
	for range 2 {
		_, err = s.Acquire(t.Context(), "k")
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err = s.Acquire(ctx, "k")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, s.Stats().Listening)
	q := newQuota(t, QuotaOptions{Client: client, Rule: limiter.Bucket{Rate: limiter.Per(1000, time.Second)}, Fallback: RefuseAll, Timeout: 5 * time.Second})
	await(t, 20*time.Second, func() bool {
		r, err := q.Take(t.Context(), "k", 1)
		require.NoError(t, err)
		require.NoError(t, r.Err)
		return r.Source == FromLease
	})
}

// A Redis that is full renews leases, takes permits back, and counts what it counts already. What is new goes by Fallback,
// and the breaker leaves Redis in use.
func TestFullRedisStaysInUse(t *testing.T) {
	server := redistest.Start(t)
	client := clientOf(t, server.Addr())
	s, err := NewSemaphore(&SemaphoreOptions{Client: client, Limit: 1, TTL: time.Second, Timeout: 5 * time.Second})
	require.NoError(t, err)
	defer s.Close()
	held, err := s.Acquire(t.Context(), "k")
	require.NoError(t, err)
	limits := map[string]*Limit{}
	for name, rule := range map[string]limiter.Rule{
		"bucket": limiter.Bucket{Rate: limiter.Per(10, time.Hour)}, "window": limiter.FixedWindow{Limit: 10, Period: time.Hour},
		"sliding": limiter.SlidingWindow{Limit: 10, Window: time.Hour},
	} {
		limits[name] = newLimit(t, client, LimitOptions{Name: name, Rules: []limiter.Rule{rule}})
		r, err := limits[name].Take(t.Context(), "known", 1)
		require.NoError(t, err)
		require.NoError(t, r.Err)
	}
	q := newQuota(t, QuotaOptions{Client: client, Rule: limiter.Bucket{Rate: limiter.Per(1000, time.Second)}, Fallback: RefuseAll})
	awaitLease(t, q, "k")
	server.Do("CONFIG", "SET", "maxmemory", "1")
	for name, l := range limits {
		for i := range 12 {
			r, err := l.Take(t.Context(), "known", 1)
			require.NoError(t, err, name)
			require.NoError(t, r.Err, name)
			require.Equal(t, i < 9, r.Allowed, "%s: %d", name, i)
			r, err = l.Take(t.Context(), "new"+strconv.Itoa(i), 1)
			require.NoError(t, err)
			require.ErrorContains(t, r.Err, "redis refused", name)
		}
		require.Equal(t, breaker.Closed, l.conn.brk.State(), name)
	}
	pause(1500 * time.Millisecond)
	require.NoError(t, held.Context().Err(), "renewed")
	require.NoError(t, held.Release())
	renewed := func() int64 { return q.Stats().Syncs - q.Stats().Failures }
	before := renewed()
	await(t, 10*time.Second, func() bool {
		_ = admit(q, "k")
		return renewed() >= before+3
	})
	held2, waiting, err := s.Peek(t.Context(), "k")
	require.NoError(t, err)
	require.Zero(t, held2+waiting)
}

// Those far behind in the queue ask seldom, and everybody gets the lock in the end.
func TestSemaphoreManyWhoWaitKeepRedisIdle(t *testing.T) {
	const waiters, poll = 200, 20 * time.Millisecond
	server := redistest.Start(t)
	s := semaphoreAt(t, server.Addr(), SemaphoreOptions{Limit: 1, Poll: poll, TTL: 5 * time.Second, Timeout: 5 * time.Second})
	held, err := s.Acquire(t.Context(), "k")
	require.NoError(t, err)
	var all sync.WaitGroup
	var got atomic.Int64
	for range waiters {
		all.Go(func() {
			h, err := s.Acquire(t.Context(), "k")
			if err == nil {
				got.Add(1)
				_ = h.Release()
			}
		})
	}
	await(t, 20*time.Second, func() bool { return s.Stats().Waiting == waiters && s.Stats().Listening })
	pause(time.Second)
	before, began := commandCalls(t, server.Client(), "evalsha"), time.Now()
	pause(2 * time.Second)
	calls := float64(commandCalls(t, server.Client(), "evalsha")-before) / time.Since(began).Seconds()
	t.Logf("%.0f scripts a second; at %v each it would be %.0f", calls, poll, waiters/poll.Seconds())
	require.Less(t, calls, waiters/poll.Seconds()/4)
	require.NoError(t, held.Release())
	all.Wait()
	require.EqualValues(t, waiters, got.Load())
}

// MaxWait bounds the wait and not the work.
func TestMaxWaitIsOfTheWaitAlone(t *testing.T) {
	client := clientOf(t, redistest.Start(t).Addr())
	m, err := NewSemaphore(&SemaphoreOptions{Client: client, Prefix: "app", MaxWait: 50 * time.Millisecond, Timeout: 5 * time.Second})
	require.NoError(t, err)
	defer m.Close()
	held, err := m.Acquire(t.Context(), "k")
	require.NoError(t, err)
	_, err = m.Acquire(t.Context(), "k")
	require.EqualError(t, err, "spillway: semaphore refused: wait too long")
	pause(100 * time.Millisecond)
	require.NoError(t, held.Context().Err())
	_, bounded := held.Context().Deadline()
	require.False(t, bounded)
	require.NoError(t, held.Release())
	for _, key := range client.Keys(t.Context(), "*").Val() {
		require.True(t, strings.HasPrefix(key, "app:sem:{"), fmt.Sprint(key))
	}
	for _, o := range []*SemaphoreOptions{{Client: client, Prefix: "{"}, {Client: client, MaxWait: -1}} {
		_, err = NewSemaphore(o)
		require.Error(t, err)
	}
}
