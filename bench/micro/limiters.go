package main

import (
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"

	"github.com/spillway-go/spillway/limiter"
)

// manyKeys is how many keys a limit per key knows before it is measured.
const manyKeys = 100_000

// limiterEntries are the static limits, called directly as their peers are.
func limiterEntries() []entry {
	tokens, hour := limiter.Per(plenty, time.Second), limiter.Per(1, rarely)
	return []entry{
		{"spillway Bucket", bucket, admit, allowed(newBucket(tokens))},
		{"spillway Bucket", bucket, refuse, denied(newBucket(hour))},
		{"spillway Shaper", bucket, admit, allowed(func() (*limiter.Shaper, error) {
			return limiter.NewShaper(&limiter.ShaperOptions{Rate: tokens})
		})},
		{"spillway Shaper", bucket, refuse, denied(func() (*limiter.Shaper, error) {
			return limiter.NewShaper(&limiter.ShaperOptions{Rate: hour})
		})},
		{"spillway WarmUp", bucket, admit, allowed(func() (*limiter.WarmUp, error) {
			return limiter.NewWarmUp(&limiter.WarmUpOptions{Rate: tokens})
		})},
		{"spillway FixedWindow", bucket, admit, allowed(newFixedWindow(1 << 53))},
		{"spillway FixedWindow", bucket, refuse, denied(newFixedWindow(1))},
		{"spillway SlidingWindow", bucket, admit, allowed(newSlidingWindow(1 << 53))},
		{"spillway SlidingWindow", bucket, refuse, denied(newSlidingWindow(1))},
		{"spillway Keyed, 100k keys", bucket, admit, anyKey(tokens)},
		{"spillway Keyed, 100k keys", bucket, refuse, anyKey(hour)},
		{"sethvargo memorystore, 100k keys", bucket, admit, sethvargoAnyKey(math.MaxUint64)},
		{"sethvargo memorystore, 100k keys", bucket, refuse, sethvargoAnyKey(1)},
		{"spillway Concurrency", bulk, admit, places},
		{"spillway Concurrency", bulk, refuse, noPlace},
		{"spillway Queue, none waiting", bulk, admit, queuePlaces},
	}
}

// An allower is a limit that can be asked for one token.
type allower interface{ Allow() bool }

func allowed[L allower](build func() (L, error)) func() (op, func(), error) {
	return func() (op, func(), error) {
		l, err := build()
		if err != nil {
			return nil, nil, err
		}
		return l.Allow, nil, nil
	}
}

func denied[L allower](build func() (L, error)) func() (op, func(), error) {
	return func() (op, func(), error) {
		l, err := build()
		if err != nil {
			return nil, nil, err
		}
		do := not(l.Allow)
		return do, nil, turned(do)
	}
}

func newBucket(r limiter.Rate) func() (*limiter.Bucket, error) {
	return func() (*limiter.Bucket, error) { return limiter.NewBucket(&limiter.BucketOptions{Rate: r}) }
}

func newFixedWindow(limit int) func() (*limiter.FixedWindow, error) {
	return func() (*limiter.FixedWindow, error) {
		return limiter.NewFixedWindow(&limiter.FixedWindowOptions{Limit: limit, Period: rarely})
	}
}

func newSlidingWindow(limit int) func() (*limiter.SlidingWindow, error) {
	return func() (*limiter.SlidingWindow, error) {
		return limiter.NewSlidingWindow(&limiter.SlidingWindowOptions{Limit: limit, Window: rarely})
	}
}

// keys returns the keys that a limit knows.
func keys() []string {
	list := make([]string, manyKeys)
	for i := range list {
		list[i] = "tenant-" + strconv.Itoa(i)
	}
	return list
}

// anyKey asks for a random key out of many, all of which are known; at a low rate they have nothing left.
func anyKey(r limiter.Rate) func() (op, func(), error) {
	return func() (op, func(), error) {
		like, err := newBucket(r)()
		if err != nil {
			return nil, nil, err
		}
		keyed, err := limiter.NewKeyed(&limiter.KeyedOptions{Like: like})
		if err != nil {
			return nil, nil, err
		}
		known := keys()
		for _, key := range known {
			keyed.Allow(key)
		}
		do := func() bool { return keyed.Allow(known[rand.IntN(manyKeys)]) }
		if r.Per == rarely {
			do = not(do)
		}
		return do, nil, nil
	}
}

// sethvargoAnyKey is anyKey for the store in memory of sethvargo's go-limiter.
func sethvargoAnyKey(tokens uint64) func() (op, func(), error) {
	return func() (op, func(), error) {
		ctx := context.Background()
		store, err := memorystore.New(&memorystore.Config{Tokens: tokens, Interval: rarely})
		if err != nil {
			return nil, nil, err
		}
		known := keys()
		take := func(key string) bool {
			_, _, _, ok, err := store.Take(ctx, key)
			return ok && err == nil
		}
		for _, key := range known {
			take(key)
		}
		do := func() bool { return take(known[rand.IntN(manyKeys)]) }
		if tokens == 1 {
			do = not(do)
		}
		return do, func() { _ = store.Close(ctx) }, nil
	}
}

func places() (op, func(), error) {
	c, err := limiter.NewConcurrency(&limiter.ConcurrencyOptions{Limit: 1000})
	if err != nil {
		return nil, nil, err
	}
	return func() bool {
		if !c.TryAcquire() {
			return false
		}
		c.Release(1)
		return true
	}, nil, nil
}

func noPlace() (op, func(), error) {
	c, err := limiter.NewConcurrency(&limiter.ConcurrencyOptions{Limit: 1})
	if err != nil {
		return nil, nil, err
	}
	do := not(c.TryAcquire)
	return do, nil, turned(do)
}

func queuePlaces() (op, func(), error) {
	q, err := limiter.NewQueue(&limiter.QueueOptions{Limit: 1000, MaxQueue: 1})
	if err != nil {
		return nil, nil, err
	}
	return func() bool {
		if !q.TryAcquire() {
			return false
		}
		q.Release(1)
		return true
	}, nil, nil
}
