package stats

import (
	"sync/atomic"
	"testing"
)

// both runs op on one goroutine, then on all processors.
func both(b *testing.B, op func()) {
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			op()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				op()
			}
		})
	})
}

func BenchmarkCounterAdd(b *testing.B) {
	var c Counter
	both(b, func() { c.Add(1) })
}

// BenchmarkAtomicAdd is what a Counter is to be compared with: one word that all cores share.
func BenchmarkAtomicAdd(b *testing.B) {
	var n atomic.Int64
	both(b, func() { n.Add(1) })
}

func BenchmarkCounterValue(b *testing.B) {
	var c Counter
	c.Add(1)
	both(b, func() { c.Value() })
}
