package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
)

// manyKeys is how many keys a limit per key knows before it is measured.
const manyKeys = 100_000

// limiterEntries are the static limits, called directly as their peers are.
func limiterEntries() []entry {
	tokens, hour := limiter.Per(plenty, time.Second), limiter.Per(1, rarely)
	return []entry{
		{"spillway Bucket", bucket, admit, always(func() op { return newBucket(tokens).Allow })},
		{"spillway Bucket", bucket, refuse, spent(func() op { return newBucket(hour).Allow })},
		{"spillway Shaper", bucket, admit, always(func() op { return newShaper(tokens).Allow })},
		{"spillway Shaper", bucket, refuse, spent(func() op { return newShaper(hour).Allow })},
		{"spillway WarmUp", bucket, admit, always(func() op { return newWarmUp(tokens).Allow })},
		{"spillway WarmUp", bucket, refuse, spent(func() op { return newWarmUp(hour).Allow })},
		{"spillway FixedWindow", bucket, admit, always(func() op { return newFixedWindow(1 << 30).Allow })},
		{"spillway FixedWindow", bucket, refuse, spent(func() op { return newFixedWindow(1).Allow })},
		{"spillway SlidingWindow", bucket, admit, always(func() op { return newSlidingWindow(1 << 30).Allow })},
		{"spillway SlidingWindow", bucket, refuse, spent(func() op { return newSlidingWindow(1).Allow })},
		{"spillway Keyed, 100k keys", bucket, admit, anyKey(tokens)},
		{"spillway Keyed, 100k keys", bucket, refuse, anyKey(hour)},
		{"sethvargo memorystore, 100k keys", bucket, admit, sethvargoAnyKey(math.MaxUint64)},
		{"sethvargo memorystore, 100k keys", bucket, refuse, sethvargoAnyKey(1)},
		{"spillway Concurrency", bulk, admit, always(func() op {
			c := newConcurrency(1000)
			return func() bool {
				if !c.Allow() {
					return false
				}
				c.Release(1)
				return true
			}
		})},
		{"spillway Concurrency", bulk, refuse, spent(func() op { return newConcurrency(1).Allow })},
		{"spillway Queue, none waiting", bulk, admit, always(func() op {
			q := spillway.Must(limiter.New(limiter.Queue{Limit: 1000, MaxQueue: 1}))
			return func() bool {
				if !q.Allow() {
					return false
				}
				q.Release(1)
				return true
			}
		})},
	}
}

func newBucket(r limiter.Rate) limiter.Limiter {
	return spillway.Must(limiter.New(limiter.Bucket{Rate: r}))
}

func newShaper(r limiter.Rate) limiter.Limiter {
	return spillway.Must(limiter.New(limiter.Shaper{Rate: r}))
}

func newWarmUp(r limiter.Rate) limiter.Limiter {
	return spillway.Must(limiter.New(limiter.WarmUp{Rate: r}))
}

func newFixedWindow(limit int) limiter.Limiter {
	return spillway.Must(limiter.New(limiter.FixedWindow{Limit: limit, Period: rarely}))
}

func newSlidingWindow(limit int) limiter.Limiter {
	return spillway.Must(limiter.New(limiter.SlidingWindow{Limit: limit, Window: rarely}))
}

func newConcurrency(limit int) limiter.Limiter {
	return spillway.Must(limiter.New(limiter.Concurrency{Limit: limit}))
}

// A keySet is many keys of the same length in one string, so that choosing a key is cheap and does not hide the cost of
// the limit.
type keySet string

const keyLength = len("tenant-123456")

func newKeySet() keySet {
	var all []byte
	for i := range manyKeys {
		all = fmt.Appendf(all, "tenant-%06d", i)
	}
	return keySet(all)
}

func (k keySet) key(i int) string { return string(k[i*keyLength : (i+1)*keyLength]) }

func (k keySet) any() string { return k.key(rand.IntN(manyKeys)) }

// anyKey asks for a random key out of many known keys. At a low rate, the keys have no tokens left.
func anyKey(r limiter.Rate) func() (op, func(), error) {
	return always(func() op {
		keyed := spillway.Must(limiter.NewKeyed(limiter.Bucket{Rate: r}, nil))
		known := newKeySet()
		for i := range manyKeys {
			keyed.Allow(known.key(i))
		}
		do := func() bool { return keyed.Allow(known.any()) }
		if r.Per == rarely {
			do = not(do)
		}
		return do
	})
}

// sethvargoAnyKey is anyKey for the store in memory of sethvargo's go-limiter.
func sethvargoAnyKey(tokens uint64) func() (op, func(), error) {
	return func() (op, func(), error) {
		ctx := context.Background()
		store, err := memorystore.New(&memorystore.Config{Tokens: tokens, Interval: rarely})
		if err != nil {
			return nil, nil, err
		}
		known := newKeySet()
		take := func(key string) bool {
			_, _, _, ok, err := store.Take(ctx, key)
			return ok && err == nil
		}
		for i := range manyKeys {
			take(known.key(i))
		}
		do := func() bool { return take(known.any()) }
		if tokens == 1 {
			do = not(do)
		}
		return do, func() { _ = store.Close(ctx) }, nil
	}
}
