package main

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/juju/ratelimit"
	"github.com/sethvargo/go-limiter/memorystore"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"
)

// Rates that admit everything, or nothing after the first request.
const (
	plenty = 1e9 // a second
	rarely = time.Hour
)

// limits are the peers with a fixed limit. Uber's waits and never refuses.
func limits() []entry {
	return []entry{
		{"x/time rate", bucket, admit, always(func() op { return rate.NewLimiter(plenty, plenty).Allow })},
		{"x/time rate", bucket, refuse, spent(func() op { return rate.NewLimiter(rate.Every(rarely), 1).Allow })},
		{"juju ratelimit", bucket, admit, always(func() op { return jujuTake(ratelimit.NewBucket(time.Nanosecond, plenty)) })},
		{"juju ratelimit", bucket, refuse, spent(func() op { return jujuTake(ratelimit.NewBucket(rarely, 1)) })},
		{"sethvargo memorystore", bucket, admit, sethvargo(plenty)},
		{"sethvargo memorystore", bucket, refuse, func() (op, func(), error) {
			do, stop, err := sethvargo(1)()
			if err != nil {
				return nil, nil, err
			}
			do = not(do)
			return do, stop, turned(do)
		}},
		{"failsafe-go ratelimiter bursty", bucket, admit, always(func() op {
			return ratelimiter.NewBursty[any](plenty, time.Second).TryAcquirePermit
		})},
		{"failsafe-go ratelimiter bursty", bucket, refuse, spent(func() op {
			return ratelimiter.NewBursty[any](1, rarely).TryAcquirePermit
		})},
		{"failsafe-go ratelimiter smooth", bucket, admit, always(func() op {
			return ratelimiter.NewSmooth[any](plenty, time.Second).TryAcquirePermit
		})},
		{"failsafe-go ratelimiter smooth", bucket, refuse, spent(func() op {
			return ratelimiter.NewSmooth[any](1, rarely).TryAcquirePermit
		})},
		{"uber ratelimit Take", bucket, admit, always(func() op {
			limiter := uber.New(plenty)
			return func() bool { return !limiter.Take().IsZero() }
		})},
		{"failsafe-go bulkhead", bulk, admit, always(func() op {
			b := bulkhead.New[any](1000)
			return func() bool {
				if !b.TryAcquirePermit() {
					return false
				}
				b.ReleasePermit()
				return true
			}
		})},
		{"failsafe-go bulkhead", bulk, refuse, spent(func() op { return bulkhead.New[any](1).TryAcquirePermit })},
	}
}

func not(do op) op { return func() bool { return !do() } }

// spent starts an op on a limit that admits once and then refuses.
func spent(build func() op) func() (op, func(), error) {
	return func() (op, func(), error) {
		do := not(build())
		return do, nil, turned(do)
	}
}

func jujuTake(b *ratelimit.Bucket) op { return func() bool { return b.TakeAvailable(1) == 1 } }

func sethvargo(tokens uint64) func() (op, func(), error) {
	return func() (op, func(), error) {
		ctx := context.Background()
		store, err := memorystore.New(&memorystore.Config{Tokens: tokens, Interval: rarely})
		if err != nil {
			return nil, nil, err
		}
		return func() bool {
			_, _, _, ok, err := store.Take(ctx, "key")
			return ok && err == nil
		}, func() { _ = store.Close(ctx) }, nil
	}
}
