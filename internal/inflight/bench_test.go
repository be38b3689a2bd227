package inflight

import (
	"runtime"
	"testing"
	"time"
)

// BenchmarkTwoClockReads is what any policy pays that knows how long requests take: the yardstick of the others.
func BenchmarkTwoClockReads(b *testing.B) {
	run(b, func() func() {
		var d time.Duration
		return func() {
			start := time.Now()
			d += time.Since(start)
			runtime.KeepAlive(d)
		}
	})
}

// BenchmarkEnterLeave is one request, with and without a limit in force.
func BenchmarkEnterLeave(b *testing.B) {
	for name, c := range map[string]struct {
		limit, lower int64 // lower is that of every other goroutine, if it is not 0
		held         int
	}{
		"calm":           {limit: NoLimit},
		"room":           {limit: 1000, held: 100},
		"narrow":         {limit: 4},
		"last-places":    {limit: 102, held: 100},
		"two-priorities": {limit: 1000, lower: 500, held: 100},
	} {
		b.Run(name, func(b *testing.B) {
			count := New()
			for range c.held {
				count.Enter(c.limit)
			}
			n := 0
			run(b, func() func() {
				limit := c.limit
				if n++; c.lower > 0 && n%2 == 0 {
					limit = c.lower
				}
				return func() {
					if at, ok := count.Enter(limit); ok {
						count.Leave(at)
					}
				}
			})
		})
	}
}

// BenchmarkRefuse is one request more than the limit.
func BenchmarkRefuse(b *testing.B) {
	count := New()
	for range 50 {
		count.Enter(50)
	}
	run(b, func() func() { return func() { count.Enter(50) } })
}

// run measures what newOp returns, by one goroutine and by one on each processor.
func run(b *testing.B, newOp func() func()) {
	b.Helper()
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		op := newOp()
		for b.Loop() {
			op()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		ops := make(chan func(), runtime.GOMAXPROCS(0))
		for range cap(ops) {
			ops <- newOp()
		}
		b.RunParallel(func(pb *testing.PB) {
			op := <-ops
			for pb.Next() {
				op()
			}
		})
	})
}
