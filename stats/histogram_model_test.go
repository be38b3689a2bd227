package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// naiveQuantile sorts all samples of the window.
func naiveQuantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(q*float64(len(s)) - 1e-9))
	return s[max(rank, 1)-1]
}

func TestHistogramAgainstModel(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 4))
		n := 1 + rng.IntN(6)
		m := newModelHistogram(t, time.Duration(1+rng.IntN(1000)), n)
		now := epoch
		for range 300 {
			switch rng.IntN(8) {
			case 0:
				now = now.Add(time.Duration(rng.Int64N(int64(spanOf(m.h)) * 5)))
			case 1, 2:
				now = now.Add(time.Duration(rng.Int64N(int64(m.h.slots.span) * 2)))
			case 3:
				now = now.Add(-time.Duration(rng.Int64N(int64(spanOf(m.h)))))
			}
			m.record(now, time.Duration(rng.Int64N(int64(3*time.Hour))>>rng.IntN(44)))
			if rng.IntN(10) == 0 {
				m.check(t, now)
			}
		}
		m.check(t, now)
	}
}

// modelHistogram keeps every sample beside the histogram. A late sample is dropped by the rule of the cells: the cell
// it would count in counts a later bucket already.
type modelHistogram struct {
	h       *Histogram
	ring    int64
	latest  map[[2]int64]int64 // place and cell: the slot it counts
	samples map[int64]map[int64][]time.Duration
}

func newModelHistogram(t testing.TB, bucket time.Duration, n int) *modelHistogram {
	h := newHistogram(t, &HistogramOptions{Span: bucket * time.Duration(n), Buckets: n})
	return &modelHistogram{h: h, ring: int64(ringSize(n)), latest: map[[2]int64]int64{}, samples: map[int64]map[int64][]time.Duration{}}
}

func (m *modelHistogram) slot(now time.Time) int64 {
	return int64(math.Floor(float64(now.Sub(epoch)) / float64(m.h.slots.span)))
}

func (m *modelHistogram) record(now time.Time, d time.Duration) {
	if m.h.base.Load() == nil {
		m.h.Count(epoch)
	}
	m.h.Record(now, d)
	d = max(0, min(d, time.Hour))
	slot, cell := m.slot(now), int64(cellOf(d))
	key := [2]int64{((slot % m.ring) + m.ring) % m.ring, cell}
	if held, ok := m.latest[key]; ok && held > slot {
		return
	}
	m.latest[key] = slot
	if m.samples[slot] == nil {
		m.samples[slot] = map[int64][]time.Duration{}
	}
	m.samples[slot][cell] = append(m.samples[slot][cell], d)
}

func (m *modelHistogram) check(t testing.TB, now time.Time) {
	t.Helper()
	var all []time.Duration
	last := m.slot(now)
	for slot := last - int64(m.h.buckets) + 1; slot <= last; slot++ {
		for cell, ds := range m.samples[slot] {
			if m.latest[[2]int64{((slot % m.ring) + m.ring) % m.ring, cell}] == slot {
				all = append(all, ds...)
			}
		}
	}
	require.Equal(t, int64(len(all)), m.h.Count(now))
	qs := []float64{0, 0.01, 0.07, 0.5, 0.9, 0.99, 0.999, 1}
	for i, got := range m.h.Quantiles(now, qs...) {
		requireNear(t, naiveQuantile(all, qs[i]), got)
		require.Equal(t, got, m.h.Quantile(now, qs[i]))
	}
}

func FuzzHistogram(f *testing.F) {
	f.Add(uint8(3), uint8(10), []byte{0, 1, 10, 2, 130, 7, 255, 200, 64, 3})
	f.Add(uint8(0), uint8(0), []byte{1, 1, 1, 1})
	f.Add(uint8(7), uint8(100), []byte("a much longer run of operations, with letters for steps"))
	f.Fuzz(func(t *testing.T, n, bucket uint8, ops []byte) {
		m, now := newModelHistogram(t, time.Duration(1+int(bucket)), 1+int(n%16)), epoch
		for i := 0; i+1 < len(ops); i += 2 {
			op, arg := ops[i], int64(int8(ops[i+1]))
			switch op % 4 {
			case 0:
				now = now.Add(time.Duration(arg))
			case 1:
				now = now.Add(time.Duration(arg) * m.h.slots.span)
			case 2:
				now = now.Add(time.Duration(arg) * spanOf(m.h) * time.Duration(op))
			}
			m.record(now, time.Duration(int64(op)<<8|arg)<<(uint(op)%38))
			if op >= 240 {
				m.check(t, now)
			}
		}
		m.check(t, now)
	})
}

// spanOf returns how far back a Histogram looks.
func spanOf(h *Histogram) time.Duration { return h.slots.span * time.Duration(h.buckets) }
