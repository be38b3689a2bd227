package stats

import (
	"testing"
	"time"
)

func BenchmarkHistogramRecord(b *testing.B) {
	h := newHistogram(b, nil)
	now := time.Now()
	both(b, func() { h.Record(now, time.Millisecond) })
}

// BenchmarkHistogramRecordSpread records durations that differ, as real ones do.
func BenchmarkHistogramRecordSpread(b *testing.B) {
	h := newHistogram(b, nil)
	now := time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		d := uint32(1)
		for pb.Next() {
			d = d*1664525 + 1013904223
			h.Record(now, time.Duration(d>>12))
		}
	})
}

func BenchmarkHistogramQuantile(b *testing.B) {
	h := newHistogram(b, nil)
	now := time.Now()
	for i := range 100_000 {
		h.Record(now, time.Duration(i)*time.Microsecond)
	}
	both(b, func() { h.Quantile(now, 0.99) })
}
