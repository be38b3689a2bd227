package limiter_test

import (
	"context"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
)

// serialAndParallel runs f alone, and from as many goroutines as there are processors.
func serialAndParallel(b *testing.B, name string, f func()) {
	b.Helper()
	b.Run(name+"/serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f()
		}
	})
	b.Run(name+"/parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				f()
			}
		})
	})
}

var wide, narrow = limiter.Per(1e9, time.Second), limiter.Per(1, 24*time.Hour)

func BenchmarkClock(b *testing.B) {
	serialAndParallel(b, "Now", func() { _ = time.Now() })
}

func BenchmarkBucket(b *testing.B) {
	allow := spillway.Must(limiter.New(limiter.Bucket{Rate: wide}))
	deny := spillway.Must(limiter.New(limiter.Bucket{Rate: narrow}))
	deny.Allow()
	serialAndParallel(b, "allow", func() { allow.Allow() })
	serialAndParallel(b, "deny", func() { deny.Allow() })
	ctx := context.Background()
	serialAndParallel(b, "admit", func() { _, _ = allow.Admit(ctx, spillway.Request{Arrived: time.Now()}) })
	serialAndParallel(b, "refuse", func() { _, _ = deny.Admit(ctx, spillway.Request{Arrived: time.Now()}) })
}

func BenchmarkXTime(b *testing.B) {
	allow, deny := rate.NewLimiter(1e9, 1e9), rate.NewLimiter(rate.Every(24*time.Hour), 1)
	deny.Allow()
	serialAndParallel(b, "allow", func() { allow.Allow() })
	serialAndParallel(b, "deny", func() { deny.Allow() })
}
