package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	zerolimit "github.com/zeromicro/go-zero/core/limit"
	zeroredis "github.com/zeromicro/go-zero/core/stores/redis"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/exact"
	"github.com/spillway-go/spillway/cluster/lease"
	"github.com/spillway-go/spillway/limiter"
)

// An entry is a limiter that is asked for one token of one key.
type entry struct {
	name  string
	clock string // whose clock decides
	ask   func(ctx context.Context, now time.Time) (allowed bool, err error)
	ready func(context.Context) error // waits until it works as it does in the long run; may be nil
	bare  map[redisCommand]int        // how many commands go with each script
	close func()
}

// A limit is the common limit of all entries: tokens per second, burst, and number of processes.
type limit struct {
	addr  string
	rate  int
	nodes int
	loss  cluster.Fallback // for Spillway's limits; 0 means their defaults
	wait  time.Duration    // the same for their Timeout
}

// plenty is a rate and a burst too large to be used up by asking Redis.
const plenty = 1_000_000

// abundance is a rate too large to be used up by asking a process.
const abundance = 1_000_000_000

// key is the key that all limiters ask about.
const key = "key"

// compared returns the entries that are compared in everything but the cost of their scripts.
func (l limit) compared() []entry {
	return []entry{l.quota(), l.bucket(), l.redisRate(), l.throttled(), l.zeroToken(), l.zeroPeriod()}
}

// client returns a client with its defaults, as a service has it.
func (l limit) client() *redis.Client { return redis.NewClient(&redis.Options{Addr: l.addr}) }

func (l limit) quota() entry {
	client := l.client()
	q := spillway.Must(lease.New(&lease.Options{
		Client: client, Name: "bench quota", Rule: limiter.Bucket{Rate: limiter.Per(l.rate, time.Second)}, Nodes: l.nodes, Fallback: l.loss,
	}))
	e := policy("spillway Quota", "own, monotonic", q)
	e.ready = func(ctx context.Context) error { return leased(ctx, q, e.ask) }
	e.close = func() { q.Close(); _ = client.Close() }
	return e
}

// leased asks for tokens until the key has a lease.
func leased(ctx context.Context, q *lease.Limit, ask func(context.Context, time.Time) (bool, error)) error {
	for begin := time.Now(); time.Since(begin) < 5*time.Second; time.Sleep(time.Millisecond) {
		if st, ok := q.KeyStats(key); ok && st.Source == cluster.FromLease && st.Grant > 0 {
			return nil
		}
		if _, err := ask(ctx, time.Now()); err != nil {
			return err
		}
	}
	return errors.New("no lease within 5 s")
}

func (l limit) bucket() entry {
	return l.rule("spillway Bucket", limiter.Bucket{Rate: limiter.Per(l.rate, time.Second)})
}

func (l limit) rule(name string, rule limiter.Rule) entry {
	client := l.client()
	e := policy(name, "Redis", spillway.Must(exact.New(&exact.Options{
		Client: client, Name: name, Rules: []limiter.Rule{rule}, Nodes: l.nodes, Fallback: l.loss, Timeout: l.wait,
	})))
	e.close = func() { _ = client.Close() }
	return e
}

// policy asks as a Gate does.
func policy(name, clock string, p spillway.Policy) entry {
	return entry{name: name, clock: clock, ask: func(ctx context.Context, now time.Time) (bool, error) {
		_, err := p.Admit(ctx, spillway.Request{Key: key, Arrived: now})
		if errors.Is(err, spillway.ErrRejected) {
			return false, nil
		}
		return err == nil, err
	}}
}

func (l limit) redisRate() entry {
	client := l.client()
	r, perSecond := redis_rate.NewLimiter(client), redis_rate.PerSecond(l.rate)
	return entry{
		name: "go-redis/redis_rate", clock: "Redis", close: func() { _ = client.Close() },
		ask: func(ctx context.Context, _ time.Time) (bool, error) {
			res, err := r.Allow(ctx, key, perSecond)
			return err == nil && res.Allowed == 1, err
		},
	}
}

func (l limit) throttled() entry {
	client := l.client()
	store := spillway.Must(throttledredis.NewCtx(client, "throttled:"))
	g := spillway.Must(throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(l.rate), MaxBurst: l.rate - 1}))
	return entry{
		name: "throttled", clock: "Redis", close: func() { _ = client.Close() },
		bare: map[redisCommand]int{"time": 1, "get": 1},
		ask: func(ctx context.Context, _ time.Time) (bool, error) {
			limited, _, err := g.RateLimitCtx(ctx, key, 1)
			return err == nil && !limited, err
		},
	}
}

func (l limit) zeroToken() entry {
	t := zerolimit.NewTokenLimiter(l.rate, l.rate, zeroredis.New(l.addr), "zero-token")
	return entry{
		name: "go-zero TokenLimiter", clock: "the caller's", close: func() {},
		ask: func(ctx context.Context, now time.Time) (bool, error) { return t.AllowNCtx(ctx, now, 1), nil },
	}
}

func (l limit) zeroPeriod() entry {
	p := zerolimit.NewPeriodLimit(1, l.rate, zeroredis.New(l.addr), "zero-period")
	return entry{
		name: "go-zero PeriodLimit", clock: "Redis", close: func() {},
		ask: func(ctx context.Context, _ time.Time) (bool, error) {
			code, err := p.TakeCtx(ctx, key)
			return err == nil && code != zerolimit.OverQuota, err
		},
	}
}

// must makes a refusal an error, for limits that are far away.
func (e *entry) must(ctx context.Context) error {
	allowed, err := e.ask(ctx, time.Now())
	if err == nil && !allowed {
		err = errRefused
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	return nil
}

func closeAll(entries []entry) {
	for _, e := range entries {
		e.close()
	}
}

var errRefused = errors.New("refused, although the limit is far away")
