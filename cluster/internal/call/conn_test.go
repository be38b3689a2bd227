package call

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
)

func mustConn(t *testing.T, o Options) *Conn {
	o.Kind = "exact"
	c, err := New(o)
	require.NoError(t, err)
	return c
}

// incr counts how often it ran.
func incr() *Script { return NewScript("return {redis.call('INCRBY', KEYS[1], ARGV[1])}") }

func TestConnRunsScripts(t *testing.T) {
	client := redistest.NewClient(t, redistest.Start(t).Addr())
	c := mustConn(t, Options{Client: client})
	for i := range int64(3) {
		got, err := c.Run(t.Context(), incr(), []string{"n"}, 2)
		require.NoError(t, err)
		require.Equal(t, []int64{2 * (i + 1)}, got)
	}
	_, err := c.Run(t.Context(), NewScript("return {'text'}"), nil)
	require.ErrorContains(t, err, "cluster: script failed: want integers, got string")
	_, err = c.Run(t.Context(), NewScript("return 1"), nil)
	require.ErrorContains(t, err, "want an array, got int64")
	reply, err := c.Call(t.Context(), NewScript("return false"), nil)
	require.NoError(t, err)
	require.Nil(t, reply)

	now, err := c.Run(t.Context(), NewScript(Clock, "return {now}"), nil)
	require.NoError(t, err)
	require.InDelta(t, time.Now().UnixMicro(), now[0], 10e6)
}

func TestConnNamesWhatWentWrong(t *testing.T) {
	client := redistest.NewClient(t, redistest.Start(t).Addr())
	c := mustConn(t, Options{Client: client})
	require.NoError(t, client.HSet(t.Context(), "hash", "field", 1).Err())
	for range 30 { // more than open the breaker
		_, err := c.Run(t.Context(), incr(), []string{"hash"}, 1)
		redistest.RequireReason(t, err, "wrong type of key")
	}
	_, err := c.Run(t.Context(), NewScript("return redis.call('NOSUCH')"), nil)
	redistest.RequireReason(t, err, "script failed")

	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err = c.Run(t.Context(), incr(), []string{"n"}, 1)
	redistest.RequireReason(t, err, "redis refused")
}

// A server that forgets its scripts all the time runs each call once.
func TestConnSurvivesScriptFlush(t *testing.T) {
	client := redistest.NewClient(t, redistest.Start(t).Addr())
	c := mustConn(t, Options{Client: client, Timeout: 5 * time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			client.ScriptFlush(ctx)
		}
	})
	const calls = 500
	for range calls {
		_, err := c.Run(t.Context(), incr(), []string{"n"}, 1)
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
	addr := redistest.Start(t).Addr()
	direct := redistest.NewClient(t, addr)
	lossy := breaking(t, addr, func(b []byte) bool { return len(b) > 1 && string(b[:2]) == "*1" })
	for name, client := range map[string]*redis.Client{
		"with deadlines":    redis.NewClient(&redis.Options{Addr: lossy, ContextTimeoutEnabled: true, MaxRetries: 5}),
		"without deadlines": redis.NewClient(&redis.Options{Addr: lossy, MaxRetries: 5}),
	} {
		t.Run(name, func(t *testing.T) {
			defer client.Close()
			require.NoError(t, direct.FlushAll(t.Context()).Err())
			c := mustConn(t, Options{Client: client, Timeout: 5 * time.Second})
			_, err := c.Run(t.Context(), incr(), []string{"n"}, 1)
			redistest.RequireReason(t, err, "redis unreachable")
			n, err := direct.Get(t.Context(), "n").Int()
			require.NoError(t, err)
			require.Equal(t, 1, n)
		})
	}
}

func TestConnHasADeadlineAndABreaker(t *testing.T) {
	addr := redistest.Silent(t)
	for name, o := range map[string]*redis.Options{
		"with deadlines":    {Addr: addr, ContextTimeoutEnabled: true},
		"without deadlines": {Addr: addr},
	} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClient(o)
			defer client.Close()
			c := mustConn(t, Options{
				Client: client, Timeout: 20 * time.Millisecond, Breaker: &breaker.Options{Consecutive: 3, OpenFor: time.Hour, MaxOpen: time.Hour},
			})
			for range 3 {
				begin := time.Now()
				_, err := c.Run(t.Context(), incr(), []string{"n"}, 1)
				redistest.RequireReason(t, err, "redis timeout")
				require.Less(t, time.Since(begin), 2*time.Second)
			}
			_, err := c.Run(t.Context(), incr(), []string{"n"}, 1)
			redistest.RequireReason(t, err, "breaker open")
			require.ErrorIs(t, err, spillway.ErrRejected)
		})
	}
}

func TestConnObeysTheCaller(t *testing.T) {
	client := redistest.NewClient(t, redistest.Silent(t))
	c := mustConn(t, Options{Client: client, Timeout: time.Minute, Breaker: &breaker.Options{Consecutive: 1}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Run(ctx, incr(), []string{"n"}, 1)
	require.ErrorIs(t, err, context.Canceled)

	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = c.Run(ctx, incr(), []string{"n"}, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, breaker.Closed, c.Breaker.Stats().State, "the caller gave Redis little time")
}

func TestConnRefusesWhatCannotBeRight(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "exact: Client must be set, got nil"},
		{Options{Client: (*redis.Client)(nil)}, "exact: Client must be set, got nil"},
		{Options{Client: (*redis.ClusterClient)(nil)}, "exact: Client must be set, got nil"},
		{Options{Client: (*redis.Ring)(nil)}, "exact: Client must be set, got nil"},
		{Options{Client: redis.NewClient(&redis.Options{ReadTimeout: -2})}, "got a *redis.Client that waits forever"},
		{Options{Timeout: time.Hour}, "exact: Timeout must be in 1ms..1m0s, got 1h0m0s"},
		{Options{Timeout: -1}, "exact: Timeout must be in 1ms..1m0s, got -1ns"},
		{
			Options{Client: redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadTimeout: -1})},
			"exact: Client must have a ReadTimeout or ContextTimeoutEnabled, got a *redis.ClusterClient that waits forever",
		},
		{
			Options{Client: redis.NewClient(&redis.Options{}), Breaker: &breaker.Options{Probes: -1}},
			"exact: Breaker: breaker: Probes",
		},
	} {
		c.o.Kind = "exact"
		_, err := New(c.o)
		require.ErrorContains(t, err, c.want)
	}
	require.False(t, Unanswered(errors.New("other")))
}

// serverError is an error that Redis answered.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

func TestErrorsTellTheirReason(t *testing.T) {
	for _, c := range []struct {
		want string
		err  error
	}{
		{"redis timeout", fmt.Errorf("wrapped: %w", context.DeadlineExceeded)},
		{"redis unreachable", fmt.Errorf("EOF")},
		{"no free connection", redis.ErrPoolTimeout},
		{"script failed", serverError("ERR unknown command")},
		{"redis refused", serverError("ERR max number of clients reached")},
		{"redis refused", serverError("LOADING Redis is loading the dataset in memory")},
		{"redis refused", serverError("NOPERM this user has no permissions")},
		{"wrong type of key", serverError("ERR WRONGTYPE Operation against a key")},
	} {
		require.Equal(t, c.want, reasonOf(c.err), "%v", c.err)
	}
	require.Equal(t, "lease", cluster.FromLease.String())
	require.Equal(t, "source(99)", cluster.Source(99).String())
}

// Redis is heard when it answers, also with an error, and not when the connection fails. A call that was not sent is not
// held against a Redis that was heard since.
func TestConnKnowsWhenRedisAnswered(t *testing.T) {
	s := redistest.Start(t)
	c := mustConn(t, Options{Client: redistest.NewClient(t, s.Addr())})
	answers := func(script string) bool {
		before := c.heard.Load()
		_, _ = c.Run(t.Context(), NewScript(script), nil)
		return c.heard.Load() > before
	}
	require.True(t, answers("return {1}"))
	require.True(t, answers("return redis.call('NOSUCH')"))
	s.Kill()
	require.False(t, answers("return {1}"))
}

// opaque hides what a client could look at to find out that a connection has ended.
type opaque struct{ net.Conn }

// A connection that has ended is not the fault of a Redis that answers on another. Redis is at fault if it answers on none.
func TestEndedConnectionsAreNotTheFaultOfRedis(t *testing.T) {
	s := redistest.Start(t)
	client := redis.NewClient(&redis.Options{
		Addr: s.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return opaque{c}, nil
		},
	})
	defer client.Close()
	c := mustConn(t, Options{Client: client, Timeout: time.Second, Breaker: &breaker.Options{Consecutive: 1, OpenFor: time.Hour, MaxOpen: time.Hour, Probes: 1}})
	_, err := c.Run(t.Context(), incr(), []string{"n"}, 1)
	require.NoError(t, err)
	require.NoError(t, redistest.NewClient(t, s.Addr()).Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal").Err())
	_, err = c.Run(t.Context(), incr(), []string{"n"}, 1)
	redistest.RequireReason(t, err, "redis unreachable")
	_, err = c.Run(t.Context(), incr(), []string{"n"}, 1)
	require.NoError(t, err, "the breaker is closed")
	require.Eventually(t, func() bool { return c.underway.Load() == 0 }, 5*time.Second, time.Millisecond)
	s.Kill()
	_, err = c.Run(t.Context(), incr(), []string{"n"}, 1)
	redistest.RequireReason(t, err, "redis unreachable")
	require.Equal(t, breaker.Open, c.Breaker.Stats().State)
}

// Calls that were never sent are not under way.
func TestCallsThatWereNotSentAreNotUnderWay(t *testing.T) {
	dead := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, DialerRetries: 1})
	defer dead.Close()
	c := mustConn(t, Options{Client: dead, Timeout: 5 * time.Second})
	for range 3 {
		_, err := c.Run(t.Context(), incr(), []string{"n"}, 1)
		redistest.RequireReason(t, err, "redis unreachable")
	}
	require.Eventually(t, func() bool { return len(c.Flights) == 0 }, 5*time.Second, time.Millisecond)
	require.Zero(t, c.underway.Load())
}

// Rejections and events of the breaker say what it protects, unless the caller has named it.
func TestBreakerIsNamed(t *testing.T) {
	client := redistest.NewClient(t, "127.0.0.1:1")
	for want, o := range map[string]*breaker.Options{"redis": nil, "sessions": {Name: "sessions"}} {
		require.Equal(t, want, mustConn(t, Options{Client: client, Breaker: o}).Breaker.Stats().Name)
	}
	unnamed := &breaker.Options{Probes: 1}
	require.Equal(t, "redis", mustConn(t, Options{Client: client, Breaker: unnamed}).Breaker.Stats().Name)
	require.Empty(t, unnamed.Name, "the caller's options stay as they are")
}
