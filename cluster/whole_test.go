package cluster_test

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strconv"
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
	"github.com/spillway-go/spillway/cluster/exact"
	"github.com/spillway-go/spillway/cluster/internal/race"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/cluster/lease"
	"github.com/spillway-go/spillway/cluster/lock"
	"github.com/spillway-go/spillway/limiter"
)

// All that goes to Redis goes by TLS too, on a connection that takes two round trips more.
func TestTLSToAFarRedis(t *testing.T) {
	dir := t.TempDir()
	pool := redistest.Certificate(t, dir)
	s := redistest.Start(t)
	port := redistest.FreePort(t)
	s.Do("CONFIG", "SET", "tls-cert-file", filepath.Join(dir, "cert.pem"), "tls-key-file", filepath.Join(dir, "key.pem"),
		"tls-ca-cert-file", filepath.Join(dir, "cert.pem"), "tls-auth-clients", "no", "tls-port", port)
	proxy := redistest.NewProxy(t, net.JoinHostPort("127.0.0.1", port))
	proxy.SetLatency(40 * time.Millisecond)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), TLSConfig: &tls.Config{RootCAs: pool, ServerName: "localhost"}})
	defer client.Close()
	l, err := exact.New(&exact.Options{Client: client, Fallback: cluster.RefuseAll, Rules: []limiter.Rule{limiter.Bucket{Rate: limiter.Per(1000, time.Second)}}})
	require.NoError(t, err)
	redistest.Await(t, 10*time.Second, func() bool {
		r, err := l.Take(t.Context(), "k", 1)
		return err == nil && r.Source == cluster.FromRedis
	})
	proxy.Reset()
	redistest.Await(t, 10*time.Second, func() bool {
		r, err := l.Take(t.Context(), "k", 1)
		return err == nil && r.Source == cluster.FromRedis
	})
	m, err := lock.New(&lock.Options{Client: client, Timeout: 5 * time.Second})
	require.NoError(t, err)
	defer m.Close()
	held, err := m.Acquire(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, held.Release())
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
	client := redistest.Start(t).User(aclOfDocs(t)...)
	rules := []limiter.Rule{
		limiter.Bucket{Rate: limiter.Per(100, time.Second)}, limiter.FixedWindow{Limit: 100, Calendar: limiter.EveryDay},
		limiter.SlidingWindow{Limit: 100, Window: time.Minute}, limiter.SlidingLog{Limit: 100, Window: time.Minute},
	}
	for i, l := range []*exact.Limit{
		newLimit(t, exact.Options{Client: client, Name: "all", Rules: rules}),
		newLimit(t, exact.Options{Client: client, Name: "stored", Rules: rules[:1], Stored: true}),
	} {
		for range 3 {
			r, err := l.Take(t.Context(), "k", 5)
			require.NoError(t, err)
			require.NoError(t, r.Err)
			require.NoError(t, l.Refund(t.Context(), "k", &r, 2))
		}
		if i == 1 {
			_, err := l.SetRule(t.Context(), "k", limiter.Bucket{Rate: limiter.Per(50, time.Second)}, exact.AndReset)
			require.NoError(t, err)
			_, _, err = l.StoredRule(t.Context(), "k")
			require.NoError(t, err)
			_, err = l.SetRule(t.Context(), "k", nil, exact.AndReset)
			require.NoError(t, err)
		}
		require.NoError(t, l.Reset(t.Context(), "k"))
	}
	s, err := lock.New(&lock.Options{Client: client, Limit: 2, TTL: 300 * time.Millisecond, Timeout: 5 * time.Second})
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
	q := newLease(t, lease.Options{Client: client, Rule: limiter.Bucket{Rate: limiter.Per(1000, time.Second)}, Fallback: cluster.RefuseAll, Timeout: 5 * time.Second})
	redistest.Await(t, 20*time.Second, func() bool {
		r, err := q.Take(t.Context(), "k", 1)
		require.NoError(t, err)
		require.NoError(t, r.Err)
		return r.Source == cluster.FromLease
	})
}

// A Redis that is full renews leases, takes permits back, and counts what it counts already. What is new goes by Fallback,
// and the breaker leaves Redis in use.
func TestFullRedisStaysInUse(t *testing.T) {
	server := redistest.Start(t)
	client := redistest.NewClient(t, server.Addr())
	s, err := lock.New(&lock.Options{Client: client, Limit: 1, TTL: time.Second, Timeout: 5 * time.Second})
	require.NoError(t, err)
	defer s.Close()
	held, err := s.Acquire(t.Context(), "k")
	require.NoError(t, err)
	limits := map[string]*exact.Limit{}
	for name, rule := range map[string]limiter.Rule{
		"bucket": limiter.Bucket{Rate: limiter.Per(10, time.Hour)}, "window": limiter.FixedWindow{Limit: 10, Period: time.Hour},
		"sliding": limiter.SlidingWindow{Limit: 10, Window: time.Hour},
	} {
		limits[name] = newLimit(t, exact.Options{Client: client, Name: name, Rules: []limiter.Rule{rule}})
		r, err := limits[name].Take(t.Context(), "known", 1)
		require.NoError(t, err)
		require.NoError(t, r.Err)
	}
	q := newLease(t, lease.Options{Client: client, Rule: limiter.Bucket{Rate: limiter.Per(1000, time.Second)}, Fallback: cluster.RefuseAll})
	redistest.Await(t, 10*time.Second, func() bool {
		r, err := q.Take(t.Context(), "k", 1)
		return err == nil && r.Source == cluster.FromLease
	})
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
		require.Equal(t, breaker.Closed, l.Stats().Breaker, name)
	}
	redistest.Pause(1500 * time.Millisecond)
	require.NoError(t, held.Context().Err(), "renewed")
	require.NoError(t, held.Release())
	renewed := func() int64 { return q.Stats().Syncs - q.Stats().Failures }
	before := renewed()
	redistest.Await(t, 10*time.Second, func() bool {
		_, _ = q.Take(t.Context(), "k", 1)
		return renewed() >= before+3
	})
	held2, waiting, err := s.Peek(t.Context(), "k")
	require.NoError(t, err)
	require.Zero(t, held2+waiting)
}

// decisions returns how many decisions per second some callers get.
func decisions(callers int, d time.Duration, decide func()) float64 {
	var n atomic.Int64
	var all sync.WaitGroup
	begin := time.Now()
	for range callers {
		all.Go(func() {
			for done := int64(0); ; done++ {
				if done%64 == 0 && time.Since(begin) >= d {
					n.Add(done)
					return
				}
				decide()
			}
		})
	}
	all.Wait()
	return float64(n.Load()) / time.Since(begin).Seconds()
}

// One hot key: by lease against one round trip for each decision, the same Redis and machine, 32 callers. The bound is a tenth
// of what an idle machine shows.
func TestLeaseIsFarFasterThanAsking(t *testing.T) {
	s := redistest.Start(t)
	client := redistest.NewClient(t, s.Addr())
	q := newLease(t, lease.Options{Client: client, Rule: limiter.Bucket{Rate: limiter.Per(1_000_000_000, time.Second)}})
	exact, err := exact.New(&exact.Options{
		Client: client, Nodes: 1,
		Rules: []limiter.Rule{limiter.Bucket{Rate: limiter.Per(1_000_000_000, time.Second)}},
	})
	require.NoError(t, err)
	redistest.Await(t, 10*time.Second, func() bool {
		r, err := q.Take(t.Context(), "k", 1)
		return err == nil && r.Source == cluster.FromLease
	})
	ctx := context.Background()
	now := time.Now()
	fast := decisions(32, 200*time.Millisecond, func() { _, _ = q.Admit(ctx, spillway.Request{Key: "k", Arrived: now}) })
	slow := decisions(32, 200*time.Millisecond, func() { _, _ = exact.Take(ctx, "k", 1) })
	t.Logf("%.3g decisions per second by lease, %.3g by asking: %.0f times", fast, slow, fast/slow)
	if !race.Enabled {
		require.Greater(t, fast, 20*slow)
	}
}
