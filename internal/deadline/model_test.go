package deadline

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever the distribution and its scale, about one request in a hundred is faster than the estimate.
func TestEstimateIsALowQuantile(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, draw := range map[string]func() float64{
		"uniform":     rng.Float64,
		"exponential": rng.ExpFloat64,
		"lognormal":   func() float64 { return math.Exp(rng.NormFloat64()) },
		"heavy tail":  func() float64 { return math.Pow(1-rng.Float64(), -2) },
		"one in ten is a hundred times faster": func() float64 {
			return math.Exp(rng.NormFloat64()/4) * []float64{0.01, 1}[min(rng.IntN(10), 1)]
		},
		"one in fifty is a hundred times faster": func() float64 {
			return math.Exp(rng.NormFloat64()/4) * []float64{0.01, 1}[min(rng.IntN(50), 1)]
		},
	} {
		for _, scale := range []time.Duration{time.Millisecond, 10 * time.Second} {
			e := newEstimator(t, nil)
			e.sparse = sparse
			now := start
			sample := func() time.Duration { return time.Duration(draw() * float64(scale)) }
			for range 20_000 {
				now = now.Add(time.Millisecond)
				e.Observe("a", sample(), now)
			}
			const n = 50_000
			faster := 0
			for range n {
				d := sample()
				if d < estimate(t, e) {
					faster++
				}
				now = now.Add(time.Millisecond)
				e.Observe("a", d, now)
			}
			require.InDelta(t, 0.01, float64(faster)/n, 0.005, "%s, scale %v", name, scale)
		}
	}
}

// model is an Estimator as one would write it for a single caller.
type model struct {
	maxKeys int
	of      map[string]*modelTrack
}

type modelTrack struct {
	born     time.Time
	probed   time.Duration
	since    time.Duration // when it began to refuse without an observation, or 0
	seen     int
	estimate float64
}

// faded returns the estimate at a time.
func (t *modelTrack) faded(at time.Duration) time.Duration {
	d := time.Duration(t.estimate)
	for since := t.since; since != 0 && at-since >= 10*time.Second && d > 0; since += 10 * time.Second {
		d /= 2
	}
	return d
}

func (m *model) sample(key string, latency time.Duration, now time.Time, finished bool) {
	t := m.of[key]
	if t == nil {
		if len(m.of) == m.maxKeys {
			return
		}
		t = &modelTrack{born: now}
		m.of[key] = t
	}
	x := float64(latency)
	if !finished {
		x++
		if t.seen > 0 && x < t.estimate {
			return
		}
	}
	if at := now.Sub(t.born); t.since != 0 && (at < t.since || at-t.since >= time.Second) {
		t.estimate, t.since = max(float64(t.faded(at)), 1000), 0
	}
	switch {
	case t.seen == 0:
		t.seen, t.estimate = 1, x
	case t.seen < 20:
		t.seen, t.estimate = t.seen+1, min(t.estimate, x)
	case x < t.estimate:
		t.estimate *= 0.802
	case x > t.estimate:
		t.estimate *= 1.002
	}
	t.estimate = max(t.estimate, 1000)
}

func (m *model) tooLate(key string, now time.Time, left time.Duration) bool {
	t := m.of[key]
	if t == nil || t.seen < 20 {
		return false
	}
	at := now.Sub(t.born)
	estimate := t.faded(at)
	if left >= time.Duration(t.estimate) || left >= estimate {
		return false
	}
	every := min(max(4*estimate, 10*ms), time.Second)
	if left >= estimate/16 && (at >= t.probed+every || at <= t.probed-every) {
		t.probed = at
		return false
	}
	if t.since == 0 {
		t.since = max(at, 1)
	}
	return true
}

// compare runs the operations that bytes stand for through an Estimator and the model. It leaves alone what differs by
// less than the nanoseconds that the Estimator rounds by.
func compare(t testing.TB, next func() (byte, bool)) {
	t.Helper()
	e := newEstimator(t, &Options{MaxKeys: 3})
	m := &model{maxKeys: 3, of: map[string]*modelTrack{}}
	now := start
	for {
		op, ok := next()
		arg, ok2 := next()
		if !ok || !ok2 {
			break
		}
		key := string(rune('a' + op>>4%4))
		d := time.Duration(math.Exp2(float64(arg)/8)) + 50 // up to 4 s; 50 ns to stay clear of what rounding decides
		switch op & 7 {
		case 0, 1, 2:
			e.Observe(key, d, now)
			m.sample(key, d, now, true)
		case 3:
			e.Unfinished(key, d, now)
			m.sample(key, d, now, false)
		case 4:
			now = now.Add(d)
		case 5:
			now = now.Add(-d / 4)
		default:
			if near(m.of[key], d) {
				continue
			}
			require.Equal(t, m.tooLate(key, now, d), late(e, key, now, now.Add(d)))
		}
		got, known := e.Estimate(key)
		if mt := m.of[key]; mt != nil {
			require.Equal(t, mt.seen >= 20, known)
			require.InEpsilon(t, mt.estimate, float64(got), 0.01)
			mt.estimate = float64(got) // rounding does not add up
		} else {
			require.False(t, known)
		}
	}
}

// near reports whether rounding decides on which side of the estimate d lies.
func near(t *modelTrack, d time.Duration) bool {
	return t != nil && math.Abs(float64(d)-t.estimate) < 2
}

func TestAgainstModel(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		left := 20_000
		compare(t, func() (byte, bool) {
			left--
			return byte(rng.Uint32()), left > 0
		})
	}
}

func FuzzEstimator(f *testing.F) {
	f.Add([]byte{0, 100, 0, 120, 4, 200, 6, 10})
	f.Fuzz(func(t *testing.T, ops []byte) {
		ops = ops[:min(len(ops), 1000)]
		compare(t, func() (byte, bool) {
			if len(ops) == 0 {
				return 0, false
			}
			op := ops[0]
			ops = ops[1:]
			return op, true
		})
	})
}
