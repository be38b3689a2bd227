package limiter

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

// start is where virtual time begins in these tests: not when the limits are made, and without a monotonic reading.
var start = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// after returns the instant d behind start.
func after(d time.Duration) time.Time { return start.Add(d) }

// A direct is what all limits that count tokens can be asked directly.
type direct interface {
	spillway.Policy
	AllowAt(now time.Time, n int) error
	ReserveAt(now time.Time, n int, maxWait time.Duration) (Reservation, error)
	PeekAt(now time.Time) State
	Idle(now time.Time) bool
	Stats() Stats
}

// A call is one line of a table: n tokens at an instant.
type call struct {
	at time.Duration
	n  int
	ok bool
}

// play asks l for each call and compares.
func play(t *testing.T, l interface {
	AllowAt(now time.Time, n int) error
}, calls []call,
) {
	t.Helper()
	for i, c := range calls {
		err := l.AllowAt(after(c.at), c.n)
		require.Equal(t, c.ok, err == nil, "call %d: %d at %v: %v", i, c.n, c.at, err)
	}
}

// A model is an obvious and slow rule. It takes n tokens at an instant that never runs backwards.
type model interface {
	allow(now time.Duration, n int) bool
}

// against plays a random schedule to l and to the model, which have to agree. A time before the latest at which something
// passed counts as that, or is refused.
func against(t *testing.T, rng *rand.Rand, l direct, m model, maxCost int, step time.Duration, calls int) {
	t.Helper()
	now, latest := time.Hour, time.Duration(0)
	for i := range calls {
		switch rng.IntN(12) {
		case 0:
			now += time.Duration(rng.Int64N(int64(step) * 40))
		case 1: // a stale clock
			now -= time.Duration(rng.Int64N(int64(step)))
		case 2, 3, 4:
		default:
			now += time.Duration(rng.Int64N(int64(step)))
		}
		n := 1 + rng.IntN(maxCost)
		if rng.IntN(3) > 0 {
			n = 1
		}
		later := after(now + time.Duration(rng.Int64N(int64(step)*100))) // to look ahead changes nothing
		l.PeekAt(later)
		l.Idle(later)
		peek := l.PeekAt(after(now))
		err := l.AllowAt(after(now), n)
		if err != nil && now < latest {
			continue
		}
		latest = max(latest, now)
		if ok := m.allow(latest, n); ok != (err == nil) || ok != (int64(n) <= peek.Remaining) {
			t.Fatalf("call %d: %d at %v: %v, but the model says %v, and Peek had %+v", i, n, now, err, ok, peek)
		}
	}
}

// seeds runs f with several seeds.
func seeds(t *testing.T, n uint64, f func(t *testing.T, rng *rand.Rand)) {
	t.Helper()
	for seed := range n {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { f(t, rand.New(rand.NewPCG(seed, 7))) })
	}
}

// same is require.Equal where it is asked so often that the test would spend its time there.
func same[T comparable](t *testing.T, want, got T, step int) {
	if want != got {
		t.Helper() // which is dear too
		require.Equal(t, want, got, "step %d", step)
	}
}

// A bucketModel is a token bucket in rational numbers.
type bucketModel struct {
	rate         *big.Rat // tokens per ns
	burst, level *big.Rat
	last         time.Duration
}

func newBucketModel(r Rate, burst int) *bucketModel {
	return &bucketModel{
		rate:  big.NewRat(int64(r.Tokens), int64(r.Per)),
		burst: big.NewRat(int64(burst), 1), level: big.NewRat(int64(burst), 1),
	}
}

func (m *bucketModel) allow(now time.Duration, n int) bool {
	level := new(big.Rat).Mul(m.rate, big.NewRat(int64(now-m.last), 1))
	if level.Add(level, m.level); level.Cmp(m.burst) > 0 {
		level.Set(m.burst)
	}
	cost := big.NewRat(int64(n), 1)
	if level.Cmp(cost) < 0 {
		return false
	}
	m.level, m.last = level.Sub(level, cost), now
	return true
}

// A logModel lets through limit tokens in any window, by remembering them all.
type logModel struct {
	limit  int
	window time.Duration
	log    []time.Duration
}

func (m *logModel) allow(now time.Duration, n int) bool {
	counting := 0
	for _, at := range m.log {
		if now-at < m.window {
			counting++
		}
	}
	if counting+n > m.limit {
		return false
	}
	for range n {
		m.log = append(m.log, now)
	}
	return true
}

// A windowModel is a fixed window from the first request on.
type windowModel struct {
	limit, used int
	period      time.Duration
	begin       time.Duration
}

func (m *windowModel) allow(now time.Duration, n int) bool {
	if m.used == 0 || now >= m.begin+m.period {
		m.begin, m.used = now, 0
	}
	if m.used+n > m.limit {
		return false
	}
	m.used += n
	return true
}
