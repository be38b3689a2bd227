package stats

import (
	"testing"
	"time"
)

func BenchmarkWindowAdd(b *testing.B) {
	w := newWindow(b, 100*time.Millisecond, 50)
	now := time.Now()
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.Add(now, 1e6)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				w.Add(now, 1e6)
			}
		})
	})
}

// BenchmarkWindowAddLate adds to a bucket that is not the newest.
func BenchmarkWindowAddLate(b *testing.B) {
	w := newWindow(b, 100*time.Millisecond, 50)
	now := time.Now()
	w.Add(now, 1)
	w.Add(now.Add(time.Second), 1)
	both(b, func() { w.Add(now, 1e6) })
}

// BenchmarkWindowRoll begins a new bucket with every sample.
func BenchmarkWindowRoll(b *testing.B) {
	w := newWindow(b, 100*time.Millisecond, 50)
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(100 * time.Millisecond)
		w.Add(now, 1e6)
	}
}

func fullWindow(b *testing.B) (*Window, time.Time) {
	w := newWindow(b, 100*time.Millisecond, 50)
	now := time.Now()
	for range 50 {
		now = now.Add(100 * time.Millisecond)
		w.Add(now, 1)
	}
	return w, now
}

func BenchmarkWindowComplete(b *testing.B) {
	w, now := fullWindow(b)
	both(b, func() {
		var most int64
		for bucket := range w.Complete(now) {
			most = max(most, bucket.Count)
		}
		if most != 1 {
			b.Error(most)
		}
	})
}

func BenchmarkWindowTotal(b *testing.B) {
	w, now := fullWindow(b)
	both(b, func() { w.Total(now) })
}
