package deadline

import (
	"testing"
	"time"
)

func BenchmarkObserve(b *testing.B) {
	bench(b, func(e *Estimator, i int) {
		e.Observe("GET /orders/{id}", time.Duration(i&1023)*time.Microsecond, start)
	})
}

func BenchmarkTooLate(b *testing.B) {
	bench(b, func(e *Estimator, i int) { e.Late("GET /orders/{id}", start, time.Duration(i&1023)) })
}

// bench runs op serially and in parallel, on one key among a hundred.
func bench(b *testing.B, op func(e *Estimator, i int)) {
	b.Helper()
	e := newEstimator(b, nil)
	for i := range 100 {
		e.Observe(string(rune('0'+i)), ms, start)
	}
	for range warmUp {
		e.Observe("GET /orders/{id}", ms, start)
	}
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			op(e, i)
			i++
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				op(e, i)
			}
		})
	})
}
