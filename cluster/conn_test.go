package cluster

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
)

// startRedis starts a server for one test and returns its address.
func startRedis(t *testing.T) string { return redistest.Start(t).Addr() }

func newClient(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func mustConn(t *testing.T, o connOptions) *conn {
	o.kind = "Limit"
	c, err := newConn(o)
	require.NoError(t, err)
	return c
}

// incr counts how often it ran.
func incr() *script { return newScript("return {redis.call('INCRBY', KEYS[1], ARGV[1])}") }

func TestConnRunsScripts(t *testing.T) {
	client := server(t)
	c := mustConn(t, connOptions{client: client})
	for i := range int64(3) {
		got, err := c.run(t.Context(), incr(), []string{"n"}, 2)
		require.NoError(t, err)
		require.Equal(t, []int64{2 * (i + 1)}, got)
	}
	_, err := c.run(t.Context(), newScript("return {'text'}"), nil)
	require.ErrorContains(t, err, "cluster: script failed: want integers, got string")
	_, err = c.run(t.Context(), newScript("return 1"), nil)
	require.ErrorContains(t, err, "want an array, got int64")
	reply, err := c.call(t.Context(), newScript("return false"), nil)
	require.NoError(t, err)
	require.Nil(t, reply)

	now, err := c.run(t.Context(), newScript(clockLua, "return {now}"), nil)
	require.NoError(t, err)
	require.InDelta(t, time.Now().UnixMicro(), now[0], 10e6)
}

func TestConnNamesWhatWentWrong(t *testing.T) {
	client := server(t)
	c := mustConn(t, connOptions{client: client})
	require.NoError(t, client.HSet(t.Context(), "hash", "field", 1).Err())
	for range 30 { // more than open the breaker
		_, err := c.run(t.Context(), incr(), []string{"hash"}, 1)
		requireReason(t, err, ReasonType)
	}
	_, err := c.run(t.Context(), newScript("return redis.call('NOSUCH')"), nil)
	requireReason(t, err, ReasonScript)

	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err = c.run(t.Context(), incr(), []string{"n"}, 1)
	requireReason(t, err, ReasonRefused)
}

func requireReason(t *testing.T, err error, reason string) {
	t.Helper()
	var lost *RedisError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, reason, lost.Reason, "%v", err)
	require.ErrorIs(t, err, ErrRedis)
}

// A server that forgets its scripts all the time runs each call once.
func TestConnSurvivesScriptFlush(t *testing.T) {
	client := server(t)
	c := mustConn(t, connOptions{client: client, timeout: 5 * time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			client.ScriptFlush(ctx)
		}
	})
	const calls = 500
	for range calls {
		_, err := c.run(t.Context(), incr(), []string{"n"}, 1)
		require.NoError(t, err)
	}
	cancel()
	wg.Wait()
	n, err := client.Get(t.Context(), "n").Int()
	require.NoError(t, err)
	require.Equal(t, calls, n)
}

// breaking is a network before a server that breaks a connection on which lose says so of a reply.
func breaking(t *testing.T, to string, lose func([]byte) bool) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			go relay(out, in, nil)
			go relay(in, out, lose)
		}
	}()
	return ln.Addr().String()
}

func relay(to, from net.Conn, lose func([]byte) bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if err != nil || lose != nil && lose(buf[:n]) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// The client retries what fails, except what this package sends: a reply that is lost must not charge twice.
func TestConnSendsOnce(t *testing.T) {
	addr := startRedis(t)
	direct := newClient(t, addr)
	lossy := breaking(t, addr, func(b []byte) bool { return len(b) > 1 && string(b[:2]) == "*1" })
	for name, client := range map[string]*redis.Client{
		"with deadlines":    redis.NewClient(&redis.Options{Addr: lossy, ContextTimeoutEnabled: true, MaxRetries: 5}),
		"without deadlines": redis.NewClient(&redis.Options{Addr: lossy, MaxRetries: 5}),
	} {
		t.Run(name, func(t *testing.T) {
			defer client.Close()
			require.NoError(t, direct.FlushAll(t.Context()).Err())
			c := mustConn(t, connOptions{client: client, timeout: 5 * time.Second})
			_, err := c.run(t.Context(), incr(), []string{"n"}, 1)
			requireReason(t, err, ReasonConn)
			n, err := direct.Get(t.Context(), "n").Int()
			require.NoError(t, err)
			require.Equal(t, 1, n)
		})
	}
}

// silent accepts connections and never says anything.
func silent(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			if _, err := ln.Accept(); err != nil {
				return
			}
		}
	}()
	return ln.Addr().String()
}

func TestConnHasADeadlineAndABreaker(t *testing.T) {
	addr := silent(t)
	for name, o := range map[string]*redis.Options{
		"with deadlines":    {Addr: addr, ContextTimeoutEnabled: true},
		"without deadlines": {Addr: addr},
	} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClient(o)
			defer client.Close()
			c := mustConn(t, connOptions{
				client: client, timeout: 20 * time.Millisecond, breaker: &breaker.Options{Consecutive: 3, OpenFor: time.Hour, MaxOpen: time.Hour},
			})
			for range 3 {
				begin := time.Now()
				_, err := c.run(t.Context(), incr(), []string{"n"}, 1)
				requireReason(t, err, ReasonTimeout)
				require.Less(t, time.Since(begin), 2*time.Second)
			}
			_, err := c.run(t.Context(), incr(), []string{"n"}, 1)
			requireReason(t, err, ReasonBreaker)
			require.ErrorIs(t, err, spillway.ErrRejected)
		})
	}
}

func TestConnObeysTheCaller(t *testing.T) {
	client := newClient(t, silent(t))
	c := mustConn(t, connOptions{client: client, timeout: time.Minute, breaker: &breaker.Options{Consecutive: 1}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.run(ctx, incr(), []string{"n"}, 1)
	require.ErrorIs(t, err, context.Canceled)

	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = c.run(ctx, incr(), []string{"n"}, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, breaker.Closed, c.brk.State(), "the caller gave Redis little time")
}

func TestConnRefusesWhatCannotBeRight(t *testing.T) {
	for _, c := range []struct {
		o    connOptions
		want string
	}{
		{connOptions{}, "cluster: Limit: Client must be set, got nil"},
		{connOptions{client: (*redis.Client)(nil)}, "cluster: Limit: Client must be set, got nil"},
		{connOptions{client: (*redis.ClusterClient)(nil)}, "cluster: Limit: Client must be set, got nil"},
		{connOptions{client: (*redis.Ring)(nil)}, "cluster: Limit: Client must be set, got nil"},
		{connOptions{client: redis.NewClient(&redis.Options{ReadTimeout: -2})}, "got a *redis.Client that waits forever"},
		{connOptions{timeout: time.Hour}, "cluster: Limit: Timeout must be in 1ms..1m0s, got 1h0m0s"},
		{connOptions{timeout: -1}, "cluster: Limit: Timeout must be in 1ms..1m0s, got -1ns"},
		{
			connOptions{client: redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadTimeout: -1})},
			"cluster: Limit: Client must have a ReadTimeout or ContextTimeoutEnabled, got a *redis.ClusterClient that waits forever",
		},
		{
			connOptions{client: redis.NewClient(&redis.Options{}), breaker: &breaker.Options{Probes: -1}},
			"cluster: Limit: Breaker: breaker: Probes",
		},
	} {
		c.o.kind = "Limit"
		_, err := newConn(c.o)
		require.ErrorContains(t, err, c.want)
	}
	require.NotErrorIs(t, errors.New("other"), ErrRedis)
}

// Redis is heard when it answers, also with an error, and not when the connection fails. A call that was not sent is not
// held against a Redis that was heard since.
func TestConnKnowsWhenRedisAnswered(t *testing.T) {
	s := redistest.Start(t)
	c := mustConn(t, connOptions{client: newClient(t, s.Addr())})
	answers := func(script string) bool {
		before := c.heard.Load()
		_, _ = c.run(t.Context(), newScript(script), nil)
		return c.heard.Load() > before
	}
	require.True(t, answers("return {1}"))
	require.True(t, answers("return redis.call('NOSUCH')"))
	s.Kill()
	require.False(t, answers("return {1}"))
}
