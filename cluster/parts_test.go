package cluster

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

// Each rule of a Limit has a key of its own, all in one slot.
func TestKeysOfRules(t *testing.T) {
	l := newLimit(t, newClient(t, "127.0.0.1:1"), LimitOptions{
		Name: "api", Prefix: "p", Rules: []Rule{perSecond(1, 1), FixedWindow(limiter.FixedWindow{Limit: 3, Period: time.Hour})},
	})
	require.Equal(t, []string{"p:{api:k}:b0", "p:{api:k}:w1"}, l.keys("k")[:2])
}

// The rule that a Result names is the one with the smallest part of its limit left.
func TestTightestRule(t *testing.T) {
	l := newLimit(t, newClient(t, "127.0.0.1:1"), LimitOptions{Rules: []Rule{perSecond(10, 10), perSecond(100, 100), perSecond(1000, 1000)}})
	for want, left := range [][3]int64{{4, 50, 501}, {5, 49, 501}, {5, 51, 499}} {
		require.Equal(t, want, l.tightest([]int64{1, 0, 0, 0, left[0], 7, 7, left[1], 7, 7, left[2], 7, 7}))
	}
}

func TestRefundsThatAreLostAreCounted(t *testing.T) {
	l := newLimit(t, newClient(t, "127.0.0.1:1"), LimitOptions{Rules: []Rule{perSecond(10, 10)}, Timeout: 100 * ms})
	err := l.giveAllBack(t.Context(), []refund{{key: "a", n: 3}, {key: "b", n: 4}})
	require.ErrorContains(t, err, "cluster: 7 tokens of 2 keys were not given back: ")
}

// A time of Redis is believed until it is off by more than a second, in either direction.
func TestServerClockLearns(t *testing.T) {
	now := time.Now()
	for _, c := range []struct{ off, want time.Duration }{
		{999 * ms, 0}, {-999 * ms, 0}, {1001 * ms, 1001 * ms}, {-1001 * ms, -1001 * ms},
	} {
		var clock serverClock
		clock.learn(now.UnixMicro(), now)
		clock.learn(now.UnixMicro()+c.off.Microseconds(), now)
		require.Equal(t, now.UnixMicro()+c.want.Microseconds(), clock.estimate(now), "%v", c.off)
	}
}

func TestReplyOfANegativeGrantIsInvalid(t *testing.T) {
	reply := func(grant, gift string) any {
		return []any{int64(1), "e", grant, "1", gift, int64(0), int64(0), int64(1), "1"}
	}
	_, err := readSync(reply("1", "1"))
	require.NoError(t, err)
	for _, bad := range [][2]string{{"-1", "0"}, {"0", "-1"}, {"NaN", "0"}} {
		_, err = readSync(reply(bad[0], bad[1]))
		requireReason(t, err, ReasonScript)
	}
}

func TestQuotaDefaults(t *testing.T) {
	o := QuotaOptions{Rate: limiter.Per(7, time.Second)}
	o.setDefaults()
	require.InDelta(t, 1, o.Weight, 0)
	require.Equal(t, 7, o.Burst)
	require.Equal(t, 3*o.Interval, o.Term)
}

// A chunk doubles if it was spent within a quarter of a term, else halves, and takes at most the share of a process of a
// quarter of what remains.
func TestChunkSizes(t *testing.T) {
	c := &chunk{size: 8, fetched: 1}
	const term = 4 * time.Second
	require.EqualValues(t, 4, (&chunk{size: 8}).next(1, 1, 100, term), "none was spent yet")
	require.EqualValues(t, 16, c.next(int64(time.Second), 1, 100, term))
	require.EqualValues(t, 8, c.next(int64(time.Second)+1, 1, 100, term))
	require.EqualValues(t, 9, c.next(1, 9, 9, term), "not more than allowed")
	a := &Allowance{nodes: 5, term: term}
	for remaining, want := range map[int64]int64{1000: 50, 100_000: 64, 10: 1} {
		c.size = 64
		c.fill(1, 1, &Result{Taken: 64, State: limiter.State{Remaining: remaining}}, a)
		require.Equal(t, want, c.size, "%d remain", remaining)
	}
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
	c := mustConn(t, connOptions{client: client, timeout: time.Second, breaker: &breaker.Options{Consecutive: 1, OpenFor: time.Hour, MaxOpen: time.Hour, Probes: 1}})
	_, err := c.run(t.Context(), incr(), []string{"n"}, 1)
	require.NoError(t, err)
	require.NoError(t, newClient(t, s.Addr()).Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal").Err())
	_, err = c.run(t.Context(), incr(), []string{"n"}, 1)
	requireReason(t, err, ReasonConn)
	_, err = c.run(t.Context(), incr(), []string{"n"}, 1)
	require.NoError(t, err, "the breaker is closed")
	require.Eventually(t, func() bool { return c.underway.Load() == 0 }, 5*time.Second, ms)
	s.Kill()
	_, err = c.run(t.Context(), incr(), []string{"n"}, 1)
	requireReason(t, err, ReasonConn)
	require.Equal(t, breaker.Open, c.brk.State())
}

// Calls that were never sent are not under way.
func TestCallsThatWereNotSentAreNotUnderWay(t *testing.T) {
	c := mustConn(t, connOptions{client: deadRedis(t), timeout: 5 * time.Second})
	for range 3 {
		_, err := c.run(t.Context(), incr(), []string{"n"}, 1)
		requireReason(t, err, ReasonConn)
	}
	require.Eventually(t, func() bool { return len(c.flights) == 0 }, 5*time.Second, ms)
	require.Zero(t, c.underway.Load())
}

// Tokens that a Quota took without Redis come back when a later policy refuses.
func TestQuotaGivesBackWithoutRedis(t *testing.T) {
	q := newQuota(t, QuotaOptions{Client: clientOf(t, "127.0.0.1:1"), Rate: limiter.Per(2, time.Hour), Nodes: 1, OnLoss: Share})
	request := func() spillway.Request { return spillway.Request{Key: "k", Arrived: time.Now()} }
	r := request()
	ticket, err := q.Admit(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, admit(q, "k"))
	for range 3 {
		require.ErrorIs(t, admit(q, "k"), spillway.ErrRejected)
		q.Done(r, ticket, spillway.Result{Outcome: spillway.Refused})
		r = request()
		ticket, err = q.Admit(t.Context(), r)
		require.NoError(t, err)
	}
}

// Of several rules, Quota tells of the one that decided.
func TestQuotaOfTheRuleThatDecided(t *testing.T) {
	t.Parallel()
	day := FixedWindow(limiter.FixedWindow{Limit: 2, Period: 24 * time.Hour, Name: "day"})
	l := newLimit(t, server(t), LimitOptions{Rules: []Rule{perSecond(1000, 1000), day}})
	r := spillway.Request{Key: "k", Arrived: time.Now()}
	require.Equal(t, "token bucket", l.Quota(time.Now(), r).Name)
	_, err := l.Admit(t.Context(), r)
	require.NoError(t, err)
	left := l.Quota(time.Now(), r)
	require.Equal(t, "day", left.Name)
	require.EqualValues(t, 1, left.Remaining)
}
