package limiter_test

import (
	"context"
	"fmt"
	"math/bits"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
)

// anyOf returns a function that returns one of n keys at random, the same for each seed.
func anyOf(keys []string, seed uint64) func() string {
	return func() string {
		seed = seed*6364136223846793005 + 1442695040888963407
		hi, _ := bits.Mul64(seed, uint64(len(keys)))
		return keys[hi]
	}
}

func BenchmarkKeyed(b *testing.B) {
	keys := make([]string, 100_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("tenant-%06d", i)
	}
	for _, c := range []struct {
		name  string
		limit limiter.Rate
	}{{"allow", wide}, {"deny", narrow}} {
		k := spillway.Must(limiter.NewKeyed(limiter.Bucket{Rate: c.limit}, &limiter.KeyedOptions{}))
		for _, key := range keys {
			k.Allow(key)
		}
		b.Run(c.name+"/serial", func(b *testing.B) {
			b.ReportAllocs()
			key := anyOf(keys, 1)
			for b.Loop() {
				k.Allow(key())
			}
		})
		var seed atomic.Uint64
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				key := anyOf(keys, seed.Add(1))
				for pb.Next() {
					k.Allow(key())
				}
			})
		})
	}
}

func BenchmarkConcurrency(b *testing.B) {
	allow := spillway.Must(limiter.New(limiter.Concurrency{Limit: 1000}))
	deny := spillway.Must(limiter.New(limiter.Concurrency{Limit: 1}))
	deny.Allow()
	serialAndParallel(b, "allow", func() {
		if allow.Allow() {
			allow.Release(1)
		}
	})
	serialAndParallel(b, "deny", func() { deny.Allow() })
}

func BenchmarkQueue(b *testing.B) {
	q := spillway.Must(limiter.New(limiter.Queue{Limit: 1000, MaxQueue: 1}))
	ctx := context.Background()
	r := spillway.Request{Arrived: time.Now()}
	serialAndParallel(b, "allow", func() {
		if _, err := q.Admit(ctx, r); err == nil {
			q.Done(r, 0, spillway.Result{})
		}
	})
}

func BenchmarkShaper(b *testing.B) {
	s := spillway.Must(limiter.New(limiter.Shaper{Rate: wide}))
	serialAndParallel(b, "allow", func() { s.Allow() })
}

func BenchmarkWindows(b *testing.B) {
	for name, l := range map[string]interface{ Allow() bool }{
		"FixedWindow":   spillway.Must(limiter.New(limiter.FixedWindow{Limit: 1 << 30, Period: time.Hour})),
		"calendar":      spillway.Must(limiter.New(limiter.FixedWindow{Limit: 1 << 30, Calendar: limiter.EveryDay})),
		"SlidingWindow": spillway.Must(limiter.New(limiter.SlidingWindow{Limit: 1 << 30, Window: time.Hour})),
		"WarmUp":        spillway.Must(limiter.New(limiter.WarmUp{Rate: wide})),
	} {
		serialAndParallel(b, name, func() { l.Allow() })
	}
}
