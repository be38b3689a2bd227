package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	"github.com/spillway-go/spillway/cluster/internal/redistest"
)

// Callers at the head of the queue ask each Poll, and those far behind ask less often, if messages wake them.
func TestPollGrowsWithThePlace(t *testing.T) {
	for _, c := range []struct {
		poll  time.Duration
		place int64
		want  time.Duration
	}{
		{10 * time.Millisecond, 0, 10 * time.Millisecond}, {10 * time.Millisecond, 7, 10 * time.Millisecond},
		{10 * time.Millisecond, 8, 20 * time.Millisecond}, {10 * time.Millisecond, 16, 30 * time.Millisecond},
		{10 * time.Millisecond, 1000, 160 * time.Millisecond},
		{time.Second, 1000, 12500 * time.Millisecond}, {20 * time.Second, 1000, 20 * time.Second},
	} {
		s := &Semaphore{poll: c.poll}
		require.Equal(t, c.poll, s.pollAt(c.place), "without messages")
		s.listening.Store(true)
		require.Equal(t, c.want, s.pollAt(c.place), "place %d", c.place)
	}
}

// patient is a client that gives up soon, on an address that may be that of a proxy.
func patient(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func semaphoreAt(t testing.TB, addr string, o Options) *Semaphore {
	t.Helper()
	o.Client = patient(t, addr)
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Second // a loaded machine is not a broken one
	}
	s, err := New(&o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// tune changes the Limit alone.
func tune(s *Semaphore, limit int) error {
	o := s.Options()
	o.Limit = limit
	return s.Tune(o)
}

func requireFull(t *testing.T, err error, reason string) {
	t.Helper()
	var full *spillway.Rejection
	require.ErrorAs(t, err, &full)
	require.Equal(t, reason, full.Reason)
}

func TestSemaphoreTryAcquire(t *testing.T) {
	redisServer := redistest.Start(t)
	a, b := semaphoreAt(t, redisServer.Addr(), Options{Limit: 2}), semaphoreAt(t, redisServer.Addr(), Options{Limit: 2})
	ctx := t.Context()
	one, err := a.TryAcquire(ctx, "k")
	require.NoError(t, err)
	two, err := b.TryAcquire(ctx, "k")
	require.NoError(t, err)
	require.Greater(t, two.Fence(), one.Fence())
	_, err = b.TryAcquire(ctx, "k")
	requireFull(t, err, "limit reached")
	_, err = b.TryAcquire(ctx, "other")
	require.NoError(t, err, "each key for itself")
	held, waiting, err := a.Peek(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, []int{2, 0}, []int{held, waiting})

	require.NoError(t, one.Release())
	require.ErrorIs(t, one.Context().Err(), context.Canceled)
	require.NoError(t, one.Release(), "twice is harmless")
	three, err := b.TryAcquire(ctx, "k")
	require.NoError(t, err)
	require.Greater(t, three.Fence(), two.Fence())
	_, err = a.TryAcquire(ctx, "k")
	requireFull(t, err, "limit reached")
	require.Equal(t, int64(1), a.Stats().Refused)
	require.Zero(t, a.Stats().InFlight)
	require.Equal(t, 3, b.Stats().InFlight)
	for _, key := range redisServer.Client().Keys(ctx, "*").Val() {
		require.Positive(t, redisServer.Client().PTTL(ctx, key).Val(), "key %s lives for ever", key)
	}
}

func TestSemaphoreShares(t *testing.T) {
	m, err := New(&Options{Client: patient(t, redistest.Start(t).Addr())})
	require.NoError(t, err)
	defer m.Close()
	outer, err := m.TryAcquire(t.Context(), "k")
	require.NoError(t, err)
	inner, err := outer.Clone()
	require.NoError(t, err)
	require.Equal(t, outer.Fence(), inner.Fence())
	require.NoError(t, inner.Release())
	require.NoError(t, inner.Release(), "twice gives back once")
	_, err = inner.Clone()
	require.ErrorIs(t, err, ErrLeaseLost)
	require.NoError(t, outer.Context().Err())
	_, err = m.TryAcquire(t.Context(), "k")
	requireFull(t, err, "limit reached")
	require.NoError(t, outer.Release())
	again, err := m.TryAcquire(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, again.Release())
}

// Never more than the limit at once, in three objects with many goroutines each, and none is left behind.
func TestSemaphoreUnderContention(t *testing.T) {
	addr := redistest.Start(t).Addr()
	var running, most, ran atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		s := semaphoreAt(t, addr, Options{Limit: 2})
		for range 8 {
			wg.Go(func() {
				for range 15 {
					h, err := s.Acquire(t.Context(), "k")
					if !errors.Is(err, nil) {
						t.Errorf("Acquire: %v", err)
						return
					}
					n := running.Add(1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					runtime.Gosched()
					ran.Add(1)
					running.Add(-1)
					if err := h.Release(); err != nil {
						t.Errorf("Release: %v", err)
					}
				}
			})
		}
	}
	wg.Wait()
	require.Equal(t, int64(3*8*15), ran.Load())
	require.Equal(t, int64(2), most.Load())
}

// Those who wait are woken by a message, in milliseconds, where polling would take a minute.
func TestSemaphoreWakes(t *testing.T) {
	redisServer := redistest.Start(t)
	s := semaphoreAt(t, redisServer.Addr(), Options{Limit: 1, TTL: time.Minute, Poll: 10 * time.Second})
	first, err := s.Acquire(t.Context(), "k")
	require.NoError(t, err)
	const waiters = 20
	var served sync.WaitGroup
	for i := range waiters {
		served.Go(func() {
			h, err := s.Acquire(t.Context(), "k")
			if err == nil {
				err = h.Release()
			}
			if err != nil {
				t.Errorf("Acquire %d: %v", i, err)
			}
		})
	}
	require.Eventually(t, func() bool {
		_, waiting, err := s.Peek(t.Context(), "k")
		return err == nil && waiting == waiters && s.Stats().Listening
	}, 10*time.Second, time.Millisecond)
	began := time.Now()
	require.NoError(t, first.Release())
	served.Wait()
	took := time.Since(began)
	t.Logf("%d handovers in %v", waiters, took)
	require.Less(t, took, 5*time.Second, "less than one poll")
}

// With messages cut off, those who wait find out by themselves.
func TestSemaphorePollsWithoutMessages(t *testing.T) {
	redisServer := redistest.Start(t)
	ctx := t.Context()
	redisServer.Do("ACL", "SETUSER", "deaf", "on", "nopass", "+@all", "~*", "resetchannels")
	s := semaphoreAt(t, redisServer.Addr(), Options{Limit: 1, Poll: 20 * time.Millisecond})
	deaf := redis.NewClient(&redis.Options{Addr: redisServer.Addr(), Username: "deaf", Password: "x", ContextTimeoutEnabled: true})
	defer deaf.Close()
	other, err := New(&Options{Client: deaf, Limit: 1, Poll: 20 * time.Millisecond})
	require.NoError(t, err)
	defer other.Close()
	for range 3 {
		h, err := s.Acquire(ctx, "k")
		require.NoError(t, err)
		got := make(chan error, 1)
		go func() {
			h, err := other.Acquire(ctx, "k")
			if err == nil {
				err = h.Release()
			}
			got <- err
		}()
		require.Eventually(t, func() bool {
			_, waiting, err := s.Peek(ctx, "k")
			return err == nil && waiting == 1
		}, 10*time.Second, time.Millisecond)
		require.NoError(t, h.Release())
		require.NoError(t, <-got)
	}
	require.False(t, other.Stats().Listening)
}

// One permit at a time goes to those who wait in the order in which they came.
func TestSemaphoreServesInOrder(t *testing.T) {
	addr := redistest.Start(t).Addr()
	all := []*Semaphore{}
	for range 3 {
		all = append(all, semaphoreAt(t, addr, Options{Limit: 1, TTL: time.Minute}))
	}
	ctx := t.Context()
	held, err := all[0].Acquire(ctx, "k")
	require.NoError(t, err)
	const waiters = 15
	order := make(chan int, waiters)
	var served sync.WaitGroup
	for i := range waiters {
		served.Go(func() {
			h, err := all[i%3].Acquire(ctx, "k")
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			order <- i
			_ = h.Release()
		})
		require.Eventually(t, func() bool {
			_, waiting, err := all[0].Peek(ctx, "k")
			return err == nil && waiting == i+1
		}, 10*time.Second, time.Millisecond)
	}
	_, err = all[1].TryAcquire(ctx, "k")
	requireFull(t, err, "limit reached")
	require.NoError(t, held.Release())
	served.Wait()
	for i := range waiters {
		require.Equal(t, i, <-order)
	}
}

func TestSemaphoreQueueIsBounded(t *testing.T) {
	s := semaphoreAt(t, redistest.Start(t).Addr(), Options{Limit: 1, MaxQueue: 1})
	h, err := s.Acquire(t.Context(), "k")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := s.Acquire(ctx, "k")
		got <- err
	}()
	waits := func(n int) func() bool {
		return func() bool {
			_, waiting, err := s.Peek(t.Context(), "k")
			return err == nil && waiting == n
		}
	}
	require.Eventually(t, waits(1), 10*time.Second, time.Millisecond)
	_, err = s.Acquire(t.Context(), "k")
	requireFull(t, err, "queue full")
	cancel()
	require.ErrorIs(t, <-got, context.Canceled)
	require.Eventually(t, waits(0), 10*time.Second, time.Millisecond, "the place in the queue is given up")
	require.NoError(t, h.Release())
	h, err = s.Acquire(t.Context(), "k")
	require.NoError(t, err, "and no permit is lost to it")
	require.NoError(t, h.Release())
}

func TestSemaphoreTune(t *testing.T) {
	s := semaphoreAt(t, redistest.Start(t).Addr(), Options{Limit: 1, TTL: time.Minute, Poll: 10 * time.Second})
	ctx := t.Context()
	one, err := s.Acquire(ctx, "k")
	require.NoError(t, err)
	got := make(chan *Lease, 1)
	go func() {
		h, err := s.Acquire(ctx, "k")
		if err != nil {
			t.Errorf("Acquire: %v", err)
		}
		got <- h
	}()
	require.Eventually(t, func() bool { return s.Stats().Waiting == 1 && s.Stats().Listening }, 10*time.Second, time.Millisecond)
	require.NoError(t, tune(s, 2))
	two := <-got
	require.NoError(t, tune(s, 1))
	_, err = s.TryAcquire(ctx, "k")
	requireFull(t, err, "limit reached")
	require.NoError(t, one.Release())
	_, err = s.TryAcquire(ctx, "k")
	requireFull(t, err, "limit reached")
	require.NoError(t, two.Release())
	_, err = s.TryAcquire(ctx, "k")
	require.NoError(t, err)
	require.ErrorContains(t, tune(s, -1), "lock: Limit must be in 1..1048576, got -1")
	require.Equal(t, int64(1), s.Stats().Limit)
	for want, change := range map[string]func(*Options){
		"TTL must stay 1m0s, got 1h0m0s":                   func(o *Options) { o.TTL, o.Guard = time.Hour, 6*time.Minute },
		`Name must stay semaphore, got other`:              func(o *Options) { o.Name = "other" },
		"Client cannot change":                             func(o *Options) { o.Client = redis.NewClient(&redis.Options{}) },
		"Breaker cannot change":                            func(o *Options) { o.Breaker = &breaker.Options{} },
		"Guard must be in":                                 func(o *Options) { o.Guard = time.Hour },
		"Fallback must be Divide, AllowAll or RefuseAll, ": func(o *Options) { o.Fallback = cluster.HoldLease },
		"Nodes must be set to Divide ":                     func(o *Options) { o.Fallback = cluster.Divide },
	} {
		o := s.Options()
		change(&o)
		require.ErrorContains(t, s.Tune(o), want)
	}
	o := s.Options()
	o.MaxQueue = -1
	require.NoError(t, s.Tune(o))
	_, err = s.Acquire(ctx, "k")
	requireFull(t, err, "limit reached")
	require.EqualValues(t, 3, s.Stats().Refused)
	require.Equal(t, []spillway.Refusal{{Policy: "semaphore", Reason: "limit reached", Count: 3}}, s.Stats().ByReason)
}

func TestSemaphoreRenews(t *testing.T) {
	t.Parallel()
	s := semaphoreAt(t, redistest.Start(t).Addr(), Options{Limit: 1, TTL: time.Second, Timeout: 200 * time.Millisecond})
	h, err := s.Acquire(t.Context(), "k")
	require.NoError(t, err)
	select {
	case <-h.Context().Done():
		require.Fail(t, "lost", "%v", context.Cause(h.Context()))
	case <-time.After(1500 * time.Millisecond):
	}
	require.Positive(t, h.Remaining())
	_, err = s.TryAcquire(t.Context(), "k")
	requireFull(t, err, "limit reached")
	require.NoError(t, h.Release())
	require.Zero(t, h.Remaining())
}

func TestSemaphoreOptions(t *testing.T) {
	c := redis.NewClient(&redis.Options{})
	defer c.Close()
	for _, o := range []struct {
		o    Options
		want string
	}{
		{Options{Client: c, Limit: -1}, "lock: Limit must be in 1..1048576, got -1"},
		{Options{Limit: 1}, "lock: Client must be set, got nil"},
		{Options{Client: c, Limit: 1, TTL: -1}, "lock: TTL must be in 50ms..1h0m0s, got -1ns"},
		{Options{Client: c, Limit: 1, Guard: time.Millisecond}, "Guard must be in 200ms..5s, TTL/50 to TTL/2, got 1ms"},
		{Options{Client: c, Limit: 1, Poll: time.Hour}, "lock: Poll must be in 1ms..10s, got 1h0m0s"},
		{Options{Client: c, Limit: 1, Fallback: cluster.HoldLease}, "lock: Fallback must be Divide, AllowAll or RefuseAll, got hold"},
		{Options{Client: c, Limit: 1, Fallback: cluster.Divide}, "lock: Nodes must be set to Divide the limit while Redis does not answer, got 0"},
		{Options{Client: c, Limit: 1, Nodes: -1}, "lock: Nodes must be in 1..65536, got -1"},
		{Options{Client: c, Limit: 1, Timeout: time.Hour}, "lock: Timeout must be in 1ms..1m0s, got 1h0m0s"},
	} {
		_, err := New(&o.o)
		require.ErrorContains(t, err, o.want)
	}
	_, err := New(nil)
	require.ErrorContains(t, err, "lock: Client must be set, got nil")
}

// Whatever is in names and keys, they do not run into each other, and all keys of one semaphore are in one slot.
func TestSemaphoreKeys(t *testing.T) {
	seen := map[string]string{}
	for _, pair := range [][2]string{{"a", "b:c"}, {"a:b", "c"}, {"a%3Ab", "c"}, {"", "}"}, {"}", ""}, {"{", "}"}, {"a", ""}, {"a}", "b"}, {"a", "}b"}} {
		s := Semaphore{base: "spillway:sem:{" + escapeTag(pair[0], true) + ":"}
		for _, key := range s.keys(pair[1]) {
			require.NotContains(t, seen, key, "%q", pair)
			seen[key] = fmt.Sprint(pair)
			require.Regexp(t, `^[^{}]*\{[^{}]+\}[^{}]*$`, key)
		}
	}
}

func TestSemaphoreClose(t *testing.T) {
	redisServer := redistest.Start(t)
	client := patient(t, redisServer.Addr())
	require.NoError(t, client.Ping(t.Context()).Err())
	before := runtime.NumGoroutine()
	s, err := New(&Options{Client: client, Limit: 1})
	require.NoError(t, err)
	h, err := s.Acquire(t.Context(), "k")
	require.NoError(t, err)
	got := make(chan error, 1)
	go func() {
		_, err := s.Acquire(t.Context(), "k")
		got <- err
	}()
	require.Eventually(t, func() bool { return s.Stats().Listening }, 10*time.Second, time.Millisecond)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-got, ErrClosed)
	require.ErrorIs(t, context.Cause(h.Context()), ErrClosed)
	require.NoError(t, h.Release())
	_, err = s.Acquire(t.Context(), "k")
	require.ErrorIs(t, err, ErrClosed)
	_, err = s.TryAcquire(t.Context(), "k")
	require.ErrorIs(t, err, ErrClosed)
	fresh := semaphoreAt(t, redisServer.Addr(), Options{Limit: 1})
	h, err = fresh.TryAcquire(t.Context(), "k")
	require.NoError(t, err, "Close has given the permit back, and the place in the queue")
	require.NoError(t, h.Release())
	require.NoError(t, fresh.Close())
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond) // the end of a goroutine is not an event to wait for
	}
	buf := make([]byte, 1<<20)
	require.Fail(t, "goroutines are left", "%s", buf[:runtime.Stack(buf, true)])
}

// Random operations on the scripts, with a clock that the test sets, against a naive model.
func TestSemaphoreScriptsAgainstModel(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			runModel(t, client, rand.New(rand.NewPCG(seed, 1)), fmt.Sprint("model", seed))
		})
	}
}

// A long key is kept by its hash, and the lease still shows it in full.
func TestSemaphoreLongKeys(t *testing.T) {
	server := redistest.Start(t)
	s := semaphoreAt(t, server.Addr(), Options{Limit: 1, Timeout: 5 * time.Second})
	long := string(make([]byte, 10_000))
	held, err := s.TryAcquire(t.Context(), long)
	require.NoError(t, err)
	require.Equal(t, long, held.Key())
	keys := server.Client().Keys(t.Context(), "*").Val()
	require.NotEmpty(t, keys)
	for _, key := range keys {
		require.Less(t, len(key), 200)
	}
}

// Only the first in the queue asks again when a lease ends: the others wait for their turn.
func TestOnlyTheFirstWaitsForTheEndOfALease(t *testing.T) {
	for place, want := range map[int64]time.Duration{1: 11 * time.Millisecond, 2: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := waiting{s: &Semaphore{poll: time.Second, stop: make(chan struct{})}, poll: time.Second}
			begin := time.Now()
			require.NoError(t, w.sleep(t.Context(), answer{left: 10 * time.Millisecond, place: place}))
			require.InDelta(t, want, time.Since(begin), float64(want/10))
		})
	}
}

// When messages stop, waiting calls ask at once: what they were waiting for may have been missed.
func TestWaitersAskWhenMessagesStop(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := semaphoreAt(t, server.Addr(), Options{Limit: 1, Poll: 10 * time.Second, TTL: 5 * time.Minute})
	woken := s.enqueue("token")
	defer s.dequeue("token")
	s.listen()
	receives := func() bool {
		select {
		case <-woken:
			return true
		case <-time.After(5 * time.Second):
			return false
		}
	}
	require.True(t, receives(), "subscribed")
	require.NoError(t, server.Client().Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
	require.True(t, receives(), "before it has subscribed again")
}
