package stats

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// modelWindow keeps every sample for ever and filters when asked. It knows the ring only by the rule which sample comes
// too late: one whose place has been taken by a later bucket.
type modelWindow struct {
	bucket  time.Duration
	n, ring int64
	base    time.Time
	seen    bool
	holder  map[int64]int64 // which slot holds a place of the ring
	samples map[int64][]int64
}

func newModelWindow(bucket time.Duration, n int) *modelWindow {
	ring := int64(1)
	for ring < int64(n) {
		ring *= 2
	}
	return &modelWindow{bucket: bucket, n: int64(n), ring: ring, holder: map[int64]int64{}, samples: map[int64][]int64{}}
}

func (m *modelWindow) slot(now time.Time) int64 {
	if !m.seen {
		m.base, m.seen = now, true
	}
	return int64(math.Floor(float64(now.Sub(m.base)) / float64(m.bucket)))
}

func (m *modelWindow) add(now time.Time, v int64) {
	slot := m.slot(now)
	place := ((slot % m.ring) + m.ring) % m.ring
	if held, ok := m.holder[place]; ok && held > slot {
		return
	}
	m.holder[place] = slot
	m.samples[slot] = append(m.samples[slot], v)
}

func (m *modelWindow) buckets(now time.Time) []Bucket {
	last := m.slot(now)
	var bs []Bucket
	for slot := last - m.n + 1; slot <= last; slot++ {
		b := Bucket{Start: m.base.Add(time.Duration(slot) * m.bucket)}
		// A slot is held as long as no later one took its place.
		if m.holder[((slot%m.ring)+m.ring)%m.ring] == slot {
			for i, v := range m.samples[slot] {
				if i == 0 {
					b.Min, b.Max = v, v
				}
				b.Count, b.Sum, b.Min, b.Max = b.Count+1, b.Sum+v, min(b.Min, v), max(b.Max, v)
			}
		}
		bs = append(bs, b)
	}
	return bs
}

func collectBuckets(w *Window, now time.Time) (all, complete []Bucket) {
	for b := range w.Buckets(now) {
		all = append(all, b)
	}
	for b := range w.Complete(now) {
		complete = append(complete, b)
	}
	return all, complete
}

func checkWindow(t *testing.T, w *Window, m *modelWindow, now time.Time) {
	t.Helper()
	want := m.buckets(now)
	all, complete := collectBuckets(w, now)
	require.Equal(t, want, all)
	require.Equal(t, want[:len(want)-1], append([]Bucket{}, complete...))
	total := Bucket{Start: want[0].Start}
	for _, b := range want {
		if b.Count == 0 {
			continue
		}
		if total.Count == 0 {
			total.Min, total.Max = b.Min, b.Max
		}
		total.Count, total.Sum = total.Count+b.Count, total.Sum+b.Sum
		total.Min, total.Max = min(total.Min, b.Min), max(total.Max, b.Max)
	}
	require.Equal(t, total, w.Total(now))
}

func TestWindowAgainstModel(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		bucket, n := time.Duration(1+rng.IntN(50)), 1+rng.IntN(12)
		w, m, now := newWindow(t, bucket, n), newModelWindow(bucket, n), epoch.Add(time.Duration(rng.IntN(1000)))
		for range 300 {
			switch rng.IntN(10) {
			case 0: // idle for long
				now = now.Add(time.Duration(rng.Int64N(int64(bucket) * int64(n) * 20)))
			case 1, 2, 3:
				now = now.Add(time.Duration(rng.Int64N(int64(bucket) * 2)))
			case 4: // the clock steps back
				now = now.Add(-time.Duration(rng.Int64N(int64(bucket) * int64(n) * 2)))
			}
			if rng.IntN(4) == 0 {
				checkWindow(t, w, m, now)
				continue
			}
			at, v := now, rng.Int64N(2001)-1000
			if rng.IntN(3) == 0 { // a late completion
				at = at.Add(-time.Duration(rng.Int64N(int64(bucket) * int64(n) * 2)))
			}
			w.Add(at, v)
			m.add(at, v)
		}
		checkWindow(t, w, m, now)
	}
}

func FuzzWindow(f *testing.F) {
	f.Add(uint8(3), uint8(10), []byte{0, 1, 10, 2, 130, 7, 255, 200, 64, 3})
	f.Add(uint8(1), uint8(1), []byte{1, 1, 1, 1})
	f.Add(uint8(50), uint8(100), []byte("a much longer run of operations, with letters for steps"))
	f.Fuzz(func(t *testing.T, n, bucket uint8, ops []byte) {
		buckets, span := 1+int(n%64), time.Duration(1+int(bucket))
		w, m, now := newWindow(t, span, buckets), newModelWindow(span, buckets), epoch
		for i := 0; i+1 < len(ops); i += 2 {
			op, arg := ops[i], int64(int8(ops[i+1]))
			switch op % 4 {
			case 0:
				now = now.Add(time.Duration(arg))
			case 1:
				now = now.Add(time.Duration(arg) * span)
			case 2:
				now = now.Add(time.Duration(arg) * span * time.Duration(buckets) * time.Duration(op))
			}
			w.Add(now, arg)
			m.add(now, arg)
			if op >= 128 {
				checkWindow(t, w, m, now)
			}
		}
		checkWindow(t, w, m, now)
	})
}
