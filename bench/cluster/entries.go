package main

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	zerolimit "github.com/zeromicro/go-zero/core/limit"
	zeroredis "github.com/zeromicro/go-zero/core/stores/redis"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/limiter"
)

// An entry is a limiter that is asked for one token of one key, and has it.
type entry struct {
	name string
	ask  func(ctx context.Context) error
}

// plenty is a rate, and a burst, that nobody here uses up.
const plenty = 1_000_000

func entries(client *redis.Client, addr string) []entry {
	return []entry{
		ours(client, "spillway Bucket", cluster.Bucket(limiter.BucketOptions{Rate: limiter.Per(plenty, time.Second)})),
		ours(client, "spillway FixedWindow", cluster.FixedWindow(limiter.FixedWindowOptions{Limit: plenty, Period: time.Hour})),
		ours(client, "spillway SlidingWindow", cluster.SlidingWindow(limiter.SlidingWindowOptions{Limit: plenty, Window: time.Hour})),
		ours(client, "spillway SlidingLog", cluster.SlidingLog(limiter.SlidingLogOptions{Limit: cluster.MaxLog, Window: time.Hour})),
		redisRate(client),
		throttledGCRA(client),
		zeroToken(addr),
		zeroPeriod(addr),
	}
}

func ours(client *redis.Client, name string, rule cluster.Rule) entry {
	limit := spillway.Must(cluster.NewLimit(&cluster.LimitOptions{
		Client: client, Name: name, Rules: []cluster.Rule{rule}, OnLoss: cluster.Closed, Timeout: time.Second,
	}))
	return entry{name, func(ctx context.Context) error {
		r, err := limit.Take(ctx, "key", 1)
		if err == nil {
			err = r.Err
		}
		return orRefused(r.Allowed, err)
	}}
}

func redisRate(client *redis.Client) entry {
	l := redis_rate.NewLimiter(client)
	limit := redis_rate.PerSecond(plenty)
	return entry{"go-redis/redis_rate", func(ctx context.Context) error {
		r, err := l.Allow(ctx, "key", limit)
		return orRefused(r != nil && r.Allowed == 1, err)
	}}
}

func throttledGCRA(client *redis.Client) entry {
	store := spillway.Must(throttledredis.NewCtx(client, "throttled:"))
	l := spillway.Must(throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(plenty), MaxBurst: plenty}))
	return entry{"throttled", func(ctx context.Context) error {
		limited, _, err := l.RateLimitCtx(ctx, "key", 1)
		return orRefused(!limited, err)
	}}
}

func zeroToken(addr string) entry {
	l := zerolimit.NewTokenLimiter(plenty, plenty, zeroredis.New(addr), "zero-token")
	return entry{"go-zero tokenlimit", func(ctx context.Context) error { return orRefused(l.AllowCtx(ctx), nil) }}
}

func zeroPeriod(addr string) entry {
	l := zerolimit.NewPeriodLimit(3600, plenty, zeroredis.New(addr), "zero-period")
	return entry{"go-zero periodlimit", func(ctx context.Context) error {
		code, err := l.TakeCtx(ctx, "key")
		return orRefused(code == zerolimit.Allowed, err)
	}}
}

func orRefused(allowed bool, err error) error {
	if err == nil && !allowed {
		err = errRefused
	}
	return err
}
