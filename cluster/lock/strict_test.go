package lock

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
					redistest.Pause(time.Duration(rand.Int64N(int64(time.Second)))) // sooner, the callers would use up the CPU
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
	s, err := New(&Options{Client: client, Limit: 1, TTL: 5 * time.Second, Timeout: 2 * time.Second})
	require.NoError(t, err)
	defer s.Close()
	holdAll(t, s, keys, 256)
	require.Equal(t, keys, s.Stats().InFlight)
	proxy.SetLatency(100 * time.Millisecond)
	lost := s.Stats().Lapsed // by a machine that was busy
	redistest.Pause(7 * time.Second)
	require.Less(t, s.Stats().Lapsed-lost, int64(keys/10), "without pipelines it is all of them")
}

// manyAtOnce takes a permit of so many keys at once, with a client that has no connection yet, from a Redis that is 5 ms away. It keeps
// them for some TTLs: none is lost, from the first to the last moment.
func manyAtOnce(t *testing.T, keys, pool int, ttl time.Duration) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	proxy.SetLatency(5 * time.Millisecond)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: pool})
	t.Cleanup(func() { _ = client.Close() })
	s, err := New(&Options{Client: client, Limit: 1, TTL: ttl})
	require.NoError(t, err)
	defer s.Close()
	began := time.Now()
	holdAll(t, s, keys, keys)
	t.Logf("acquired in %v: %+v", time.Since(began), s.Stats())
	redistest.Pause(3 * ttl)
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
	s, err := New(&Options{Client: client, Limit: 1, TTL: 3 * time.Second})
	require.NoError(t, err)
	defer s.Close()
	holdAll(t, s, keys, 8)
	require.Equal(t, keys, s.Stats().InFlight)
	require.Equal(t, 6, cap(s.conn.Flights), "three quarters of the connections")
	for range cap(s.conn.Flights) {
		s.conn.Flights <- struct{}{}
	}
	proxy.SetLatency(200 * time.Millisecond) // DefaultTimeout is 100 ms
	redistest.Pause(4 * time.Second)
	require.NoError(t, s.conn.Breaker.SetMode(time.Now(), breaker.ForcedOpen))
	redistest.Pause(4 * time.Second)
	require.Zero(t, s.Stats().Lapsed)
	proxy.Heal()
	for range cap(s.conn.Flights) {
		<-s.conn.Flights
	}
}

// A user who may not publish releases permits, and those who wait poll.
func TestSemaphoreWithoutTheRightToPublish(t *testing.T) {
	for name, rights := range map[string][]any{
		"no command":  {"~*", "&*", "+@all", "-publish"},
		"no channels": {"~*", "resetchannels", "+@all"},
	} {
		t.Run(name, func(t *testing.T) {
			client := redistest.Start(t).User(rights...)
			s, err := New(&Options{Client: client, Limit: 1, Timeout: 5 * time.Second})
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
				redistest.Await(t, 10*time.Second, func() bool {
					_, waiting, err := s.Peek(t.Context(), "k")
					return err == nil && waiting == 1
				})
				require.NoError(t, held.Release())
				require.NoError(t, <-got)
			}
			require.Equal(t, breaker.Closed, s.conn.Breaker.Stats().State)
		})
	}
}

// Those far behind in the queue ask seldom, and everybody gets the lock in the end.
func TestSemaphoreManyWhoWaitKeepRedisIdle(t *testing.T) {
	const waiters, poll = 200, 20 * time.Millisecond
	server := redistest.Start(t)
	s := semaphoreAt(t, server.Addr(), Options{Limit: 1, Poll: poll, TTL: 5 * time.Second, Timeout: 5 * time.Second})
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
	redistest.Await(t, 20*time.Second, func() bool { return s.Stats().Waiting == waiters && s.Stats().Listening })
	redistest.Pause(time.Second)
	before, began := redistest.CommandCalls(t, server.Client(), "evalsha"), time.Now()
	redistest.Pause(2 * time.Second)
	calls := float64(redistest.CommandCalls(t, server.Client(), "evalsha")-before) / time.Since(began).Seconds()
	t.Logf("%.0f scripts a second; at %v each it would be %.0f", calls, poll, waiters/poll.Seconds())
	require.Less(t, calls, waiters/poll.Seconds()/4)
	require.NoError(t, held.Release())
	all.Wait()
	require.EqualValues(t, waiters, got.Load())
}

// MaxWait bounds the wait and not the work.
func TestMaxWaitIsOfTheWaitAlone(t *testing.T) {
	client := redistest.NewClient(t, redistest.Start(t).Addr())
	m, err := New(&Options{Client: client, Prefix: "app", MaxWait: 50 * time.Millisecond, Timeout: 5 * time.Second})
	require.NoError(t, err)
	defer m.Close()
	held, err := m.Acquire(t.Context(), "k")
	require.NoError(t, err)
	_, err = m.Acquire(t.Context(), "k")
	require.EqualError(t, err, "spillway: semaphore refused: wait too long")
	redistest.Pause(100 * time.Millisecond)
	require.NoError(t, held.Context().Err())
	_, bounded := held.Context().Deadline()
	require.False(t, bounded)
	require.NoError(t, held.Release())
	for _, key := range client.Keys(t.Context(), "*").Val() {
		require.True(t, strings.HasPrefix(key, "app:sem:{"), fmt.Sprint(key))
	}
	for _, o := range []*Options{{Client: client, Prefix: "{"}, {Client: client, MaxWait: -1}} {
		_, err = New(o)
		require.Error(t, err)
	}
}
