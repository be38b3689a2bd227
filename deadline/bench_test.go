package deadline_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/deadline"
)

// BenchmarkTwoClockReads is what the benchmarks below are compared with: time.Now when a request comes and when it goes.
func BenchmarkTwoClockReads(b *testing.B) {
	bothWays(b, func() {
		if time.Since(time.Now()) < 0 {
			panic("the clock went backwards")
		}
	})
}

// BenchmarkGate is a gate with a Policy alone: a request without a timeout, one with a timeout by ctx, and a refused one.
func BenchmarkGate(b *testing.B) {
	background := context.Background()
	bounded, cancel := context.WithTimeout(background, time.Hour)
	defer cancel()
	for _, c := range []struct {
		name    string
		ctx     context.Context
		timeout time.Duration
	}{{"without", background, 0}, {"in time", bounded, 0}, {"late", background, time.Microsecond}} {
		b.Run(c.name, func(b *testing.B) {
			p := newPolicy(b, nil)
			for range 20 {
				run(p, start, "GET /items/{id}", 0, 50*ms)
			}
			gate := spillway.New(p)
			bothWays(b, func() {
				permit, err := gate.Enter(c.ctx, spillway.Request{Route: "GET /items/{id}", Timeout: c.timeout})
				if err == nil {
					permit.Done(spillway.Success)
				}
			})
		})
	}
}

// BenchmarkObserve is what a success costs, of one route that all cores serve.
func BenchmarkObserve(b *testing.B) {
	p := taught(b, 50*ms)
	r := spillway.Request{Route: "a", Arrived: start}
	bothWays(b, func() { p.Done(r, 0, spillway.Result{Outcome: spillway.Success, Latency: 60 * ms}) })
}

func bothWays(b *testing.B, f func()) {
	b.Helper()
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				f()
			}
		})
	})
}

var _ spillway.Policy = (*deadline.Policy)(nil)
