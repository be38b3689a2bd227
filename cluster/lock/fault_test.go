package lock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
)

// quick is a breaker that does not slow a test down.
func quick() *breaker.Options {
	return &breaker.Options{Consecutive: 5, OpenFor: 10 * time.Millisecond, MaxOpen: 10 * time.Millisecond}
}

// behindProxy returns a semaphore that reaches the server through a proxy, and one that reaches it directly.
func behindProxy(t *testing.T, o Options) (s, direct *Semaphore, p *redistest.Proxy, server *redistest.Server) {
	server = redistest.Start(t)
	p = redistest.NewProxy(t, server.Addr())
	direct = semaphoreAt(t, server.Addr(), o)
	o.Timeout, o.Breaker = 200*time.Millisecond, quick()
	s = semaphoreAt(t, p.Addr(), o)
	require.Eventually(t, func() bool { return patient(t, p.Addr()).Ping(t.Context()).Err() == nil }, 10*time.Second, time.Millisecond)
	h := mustAcquire(t, s, "warm")
	require.NoError(t, h.Release())
	return s, direct, p, server
}

// mustAcquire bears a machine that is slow to answer.
func mustAcquire(t *testing.T, s *Semaphore, key string) *Lease {
	t.Helper()
	var h *Lease
	require.Eventually(t, func() bool {
		var err error
		h, err = s.Acquire(t.Context(), key)
		return err == nil
	}, 20*time.Second, time.Millisecond)
	return h
}

func requireHeld(t *testing.T, s *Semaphore, want int) {
	t.Helper()
	var held, waiting int
	var err error
	for range 2000 {
		if held, waiting, err = s.Peek(t.Context(), "k"); err == nil && held == want && waiting == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond) // permits expire and are given back in Redis, which reports neither
	}
	require.Fail(t, "permits", "%d held, %d wait, error %v, want %d held", held, waiting, err, want)
}

// The TTL is too long for it to give anything back here.
func longLease() Options {
	return Options{Limit: 1, TTL: 10 * time.Minute, Poll: 50 * time.Millisecond}
}

func TestPermitIsNotLostWithTheReply(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*redistest.Proxy){
		"the reply is lost":      func(p *redistest.Proxy) { p.DropReplies(1) },
		"the request is delayed": func(p *redistest.Proxy) { p.BlackHole(true) },
		"the reply is delayed":   func(p *redistest.Proxy) { p.SetLatency(time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			s, direct, p, _ := behindProxy(t, longLease())
			fault(p)
			_, err := s.TryAcquire(t.Context(), "k")
			require.ErrorAs(t, err, new(*cluster.RedisError))
			p.Heal()
			require.Eventually(t, func() bool { return s.Stats().Returning == 0 }, 20*time.Second, time.Millisecond)
			requireHeld(t, direct, 0)
			time.Sleep(20 * time.Millisecond) // whatever was held up arrives
			requireHeld(t, direct, 0)
			require.NoError(t, mustAcquire(t, s, "k").Release())
		})
	}
}

// One who waits asks again with the same token, so it gets one permit, however many replies are lost.
func TestWaiterBearsLostReplies(t *testing.T) {
	t.Parallel()
	s, direct, p, _ := behindProxy(t, longLease())
	first := mustAcquire(t, direct, "k")
	got := make(chan *Lease, 1)
	go func() {
		h, err := s.Acquire(t.Context(), "k")
		if err != nil {
			t.Errorf("Acquire: %v", err)
		}
		got <- h
	}()
	require.Eventually(t, func() bool { return s.Stats().Listening }, 20*time.Second, time.Millisecond)
	p.DropReplies(1)
	require.NoError(t, first.Release())
	require.Eventually(t, func() bool { return s.Stats().Unanswered > 0 }, 20*time.Second, time.Millisecond)
	p.Heal()
	h := <-got
	require.NotNil(t, h)
	held, _, err := direct.Peek(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, 1, held)
	require.NoError(t, h.Release())
	requireHeld(t, direct, 0)
}

func TestReleaseWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	s, direct, p, _ := behindProxy(t, longLease())
	for name, fault := range map[string]func(){
		"the reply is lost": func() { p.DropReplies(1) }, "nothing arrives": func() { p.Refuse(true); p.Reset() },
	} {
		h := mustAcquire(t, s, "k")
		fault()
		require.ErrorAs(t, h.Release(), new(*cluster.RedisError), name)
		require.NoError(t, h.Release(), name)
		p.Heal()
		requireHeld(t, direct, 0)
		require.Eventually(t, func() bool { return s.Stats().Returning == 0 }, 20*time.Second, time.Millisecond, name)
	}
}

// Whatever happens to Redis, the context of a holder ends before the lease does, as counted from before it was asked for.
func TestHolderIsToldBeforeItsLeaseEnds(t *testing.T) {
	t.Parallel()
	const ttl = 500 * time.Millisecond
	for name, fault := range map[string]func(*redistest.Proxy, *redistest.Server){
		"killed":      func(_ *redistest.Proxy, s *redistest.Server) { s.Kill() },
		"paused":      func(_ *redistest.Proxy, s *redistest.Server) { s.Pause() },
		"flushed":     func(_ *redistest.Proxy, s *redistest.Server) { s.Do("FLUSHALL") },
		"restarted":   func(_ *redistest.Proxy, s *redistest.Server) { s.Restart() },
		"unreachable": func(p *redistest.Proxy, _ *redistest.Server) { p.BlackHole(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, p, server := behindProxy(t, Options{Limit: 1, TTL: ttl})
			began := time.Now()
			h := mustAcquire(t, s, "k")
			select {
			case <-time.After(ttl / 2): // renewed by now
			case <-h.Context().Done(): // on a very slow machine
			}
			fault(p, server)
			if name == "paused" {
				defer server.Resume()
			}
			at := time.Now()
			<-h.Context().Done()
			took := time.Since(at)
			t.Logf("told %v after the fault", took)
			require.ErrorIs(t, context.Cause(h.Context()), ErrLeaseLost)
			require.Less(t, took, ttl+5*time.Second, "it is a timer, and a loaded machine is late")
			require.Greater(t, time.Since(began), ttl/3)
			require.Zero(t, h.Remaining())
			require.ErrorIs(t, h.Release(), ErrLeaseLost)
			require.Equal(t, int64(1), s.Stats().Lapsed)
		})
	}
}

// Redis comes back without its memory: numbers go on growing, and everything works again.
func TestSemaphoreAfterFailover(t *testing.T) {
	t.Parallel()
	s, direct, p, server := behindProxy(t, Options{Limit: 1, TTL: time.Second})
	link := redistest.NewProxy(t, server.Addr())
	replica := redistest.Replica(t, link.Addr())
	require.NoError(t, direct.Close())
	link.BlackHole(true) // the replica lags from here on
	lost := mustAcquire(t, s, "k")
	server.Kill()
	replica.Promote()
	p.SetTarget(replica.Addr())
	p.Reset()
	other := semaphoreAt(t, replica.Addr(), Options{Limit: 1, TTL: time.Second})
	next := mustAcquire(t, other, "k")
	require.Greater(t, next.Fence(), lost.Fence(), "the replica knew nothing of the lease, so two hold it; the number tells them apart")
	<-lost.Context().Done()
	require.ErrorIs(t, context.Cause(lost.Context()), ErrLeaseLost)
	require.NoError(t, next.Release())
	again := mustAcquire(t, s, "k")
	require.Greater(t, again.Fence(), next.Fence())
	require.NoError(t, again.Release())
}

func TestSemaphoreOnRedisCluster(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes), ContextTimeoutEnabled: true})
	defer client.Close()
	s, err := New(&Options{Client: client, Limit: 1, TTL: time.Minute, Poll: 10 * time.Second, Timeout: 5 * time.Second})
	require.NoError(t, err)
	defer s.Close()
	for _, key := range []string{"a", "b", "c", "{d}", "}e", ""} {
		h, err := s.Acquire(t.Context(), key)
		require.NoError(t, err)
		got := make(chan error, 1)
		go func() {
			h, err := s.Acquire(t.Context(), key)
			if err == nil {
				err = h.Release()
			}
			got <- err
		}()
		require.Eventually(t, func() bool {
			_, waiting, err := s.Peek(t.Context(), key)
			return err == nil && waiting == 1 && s.Stats().Listening
		}, 20*time.Second, time.Millisecond)
		began := time.Now()
		require.NoError(t, h.Release())
		require.NoError(t, <-got)
		require.Less(t, time.Since(began), 5*time.Second, "woken by a message from whatever node")
	}
}

// No fault leaves goroutines behind, and none piles up while it lasts.
func TestSemaphoreGoroutinesAreFlat(t *testing.T) {
	t.Parallel()
	o := Options{Limit: 4, TTL: 200 * time.Millisecond, Poll: 10 * time.Millisecond}
	s, _, p, server := behindProxy(t, o)
	for i := range 36 {
		switch i {
		case 6:
			p.DropReplies(0.5)
		case 12:
			p.BlackHole(true)
		case 15:
			p.BlackHole(false)
			p.Reset()
		case 18:
			server.Restart()
		case 24:
			p.Heal()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		h, err := s.Acquire(ctx, "k")
		if err == nil && i%3 > 0 { // one in three is left to its TTL
			_ = h.Release()
		}
		cancel()
	}
	requireGoroutines(t, fmt.Sprintf("lock.(*Semaphore).renewLoop(%p", s), 1)
	requireGoroutines(t, fmt.Sprintf("(%p", s), 40) // loops, and frames of calls on their way
	require.NoError(t, s.Close())
	requireGoroutines(t, fmt.Sprintf("(%p", s), 0)
}

func stacks() string {
	buf := make([]byte, 1<<21)
	return string(buf[:runtime.Stack(buf, true)])
}

// requireGoroutines waits until at most so many stack frames have a text in them.
func requireGoroutines(t *testing.T, text string, most int) {
	t.Helper()
	for range 1000 {
		if strings.Count(stacks(), text) <= most {
			return
		}
		time.Sleep(10 * time.Millisecond) // the end of a goroutine is not an event to wait for
	}
	require.Fail(t, "too many goroutines", "%s:\n%s", text, stacks())
}

// Many goroutines admit and end requests, some of which are refused further on: nothing is left in flight.
func TestSemaphorePolicyEndsEmpty(t *testing.T) {
	t.Parallel()
	o := longLease()
	o.Limit = 3
	s, direct, _, _ := behindProxy(t, o)
	var all sync.WaitGroup
	var admitted atomic.Int64
	for i := range 8 {
		all.Go(func() {
			for j := range 40 {
				r := spillway.Request{Key: "k", Cost: j}
				ticket, err := s.Admit(t.Context(), r)
				if err != nil {
					continue
				}
				admitted.Add(1)
				s.Done(r, ticket, spillway.Result{Outcome: spillway.Outcome(i) % (spillway.Refused + 1)})
				s.Done(r, ticket, spillway.Result{}) // harmless
			}
		})
	}
	all.Wait()
	require.Positive(t, admitted.Load())
	require.Zero(t, s.Stats().InFlight)
	requireHeld(t, direct, 0)
}

func TestSemaphoreAsAPolicy(t *testing.T) {
	s, direct, _, _ := behindProxy(t, longLease())
	gate := spillway.New(s)
	permit, err := gate.Enter(t.Context(), spillway.Request{Key: "k", Cost: 7})
	require.NoError(t, err)
	_, err = gate.Enter(t.Context(), spillway.Request{Key: "k"})
	requireFull(t, err, "limit reached")
	other, err := gate.Enter(t.Context(), spillway.Request{Key: "other"})
	require.NoError(t, err)
	other.Done(spillway.Success)
	requireHeld(t, direct, 1)
	permit.Done(spillway.Success)
	requireHeld(t, direct, 0)
	s.Done(spillway.Request{Key: "k"}, 12345, spillway.Result{}) // a ticket that is nobody's
	h := mustAcquire(t, s, "k")
	s.Done(spillway.Request{Key: "k"}, spillway.Ticket(h.permit.serial), spillway.Result{})
	require.NoError(t, h.Context().Err(), "a ticket is not a handle")
	require.NoError(t, h.Release())
}

// Redis is gone, and Fallback decides.
func TestSemaphoreOnLoss(t *testing.T) {
	for loss, want := range map[cluster.Fallback]int{cluster.Divide: 2, cluster.AllowAll: 5, cluster.RefuseAll: 0} {
		t.Run(loss.String(), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			o := Options{Limit: 4, Nodes: 2, Fallback: loss, Timeout: 200 * time.Millisecond, Breaker: quick()}
			s := semaphoreAt(t, server.Addr(), o)
			server.Kill()
			r, why := spillway.Request{Key: "k"}, "limit reached"
			if loss == cluster.RefuseAll {
				why = "redis unavailable"
			}
			for range 2 { // once more when the first ones have ended
				var tickets []spillway.Ticket
				for range 5 {
					ticket, err := s.Admit(t.Context(), r)
					if err != nil {
						requireFull(t, err, why)
						continue
					}
					tickets = append(tickets, ticket)
				}
				require.Len(t, tickets, want)
				for _, ticket := range tickets {
					s.Done(r, ticket, spillway.Result{})
				}
			}
			require.Zero(t, s.Stats().Expiring, "Redis knows nothing of them")
			require.GreaterOrEqual(t, s.Stats().Unanswered, int64(5))
			require.Equal(t, int64(2*want), s.Stats().ByFallback)
			server.Restart()
			require.Eventually(t, func() bool {
				before := s.Stats().ByFallback
				_, err := s.Admit(t.Context(), r)
				return err == nil && s.Stats().ByFallback == before
			}, 20*time.Second, time.Millisecond)
			require.Eventually(t, func() bool {
				_, err := s.Admit(t.Context(), spillway.Request{Key: "k"})
				var full *spillway.Rejection
				return errors.As(err, &full) && full.Reason == "limit reached"
			}, 20*time.Second, time.Millisecond)
		})
	}
}
