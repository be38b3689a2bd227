package limiter

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

// A listModel is a queue for places, with a slice of everybody and no cleverness.
type listModel struct {
	limit, inFlight int64
	maxQueue        int
	order           Order
	interval        int64
	emptied         int64
	queue           []*modelGuest // in the order in which they came
}

type modelGuest struct {
	g    *guest // the one of the list under test
	n    int64
	p    spillway.Priority
	fate fate
}

func (m *listModel) stands(now int64) bool {
	return m.order == Adaptive && len(m.queue) > 0 && now-m.emptied > m.interval
}

// next returns the one whose turn it is.
func (m *listModel) next(now int64) *modelGuest {
	var best *modelGuest
	for _, g := range m.queue {
		last := m.order == LIFO || m.stands(now)
		if best == nil || g.p > best.p || last && g.p == best.p {
			best = g
		}
	}
	return best
}

func (m *listModel) drop(g *modelGuest, f fate) {
	m.queue = slices.DeleteFunc(m.queue, func(o *modelGuest) bool { return o == g })
	g.fate = f
}

func (m *listModel) grant(now int64) {
	for len(m.queue) > 0 {
		g := m.next(now)
		if g.n > m.limit-m.inFlight {
			return
		}
		m.inFlight += g.n
		m.drop(g, runs)
	}
	m.emptied = max(m.emptied, now)
}

// ask returns the guest who waits, or nil and whether it got its places.
func (m *listModel) ask(now, n int64, p spillway.Priority) (*modelGuest, bool) {
	if len(m.queue) == 0 {
		m.emptied = max(m.emptied, now)
	}
	highest := len(m.queue) == 0 || p > slices.MaxFunc(m.queue, func(a, b *modelGuest) int { return int(a.p - b.p) }).p
	if n <= m.limit-m.inFlight && highest {
		m.inFlight += n
		return nil, true
	}
	if len(m.queue) >= m.maxQueue {
		var lowest *modelGuest
		for _, g := range m.queue {
			if lowest == nil || g.p <= lowest.p {
				lowest = g
			}
		}
		if lowest.p >= p {
			return nil, false
		}
		m.drop(lowest, ousted)
	}
	g := &modelGuest{n: n, p: p}
	m.queue = append(m.queue, g)
	return g, false
}

func (m *listModel) setLimit(now, limit int64) {
	m.limit = limit
	for _, g := range slices.Clone(m.queue) {
		if g.n > limit {
			m.drop(g, large)
		}
	}
	m.grant(now)
}

func TestWaitlistAgainstModel(t *testing.T) {
	for _, order := range []Order{FIFO, LIFO, Adaptive} {
		seeds(t, 20, func(t *testing.T, rng *rand.Rand) {
			limit, maxQueue := 1+rng.Int64N(6), 1+rng.IntN(8)
			q := &waitlist{limit: limit, maxQueue: maxQueue, order: order, maxWait: 1000, target: 50, interval: 100}
			m := &listModel{limit: limit, maxQueue: maxQueue, order: order, interval: 100}
			runModel(t, rng, q, m)
		})
	}
}

func runModel(t *testing.T, rng *rand.Rand, q *waitlist, m *listModel) {
	t.Helper()
	var known []*modelGuest // all who ever waited and may still run
	var running []int64
	now := int64(1000)
	for i := range 3000 {
		now += rng.Int64N(30)
		switch rng.IntN(7) {
		case 0, 1, 2:
			n, p := 1+rng.Int64N(min(3, m.limit)), spillway.Priority(rng.IntN(4))
			want, got := m.ask(now, n, p)
			same(t, got, q.tryNow(now, n, p), i)
			if got {
				running = append(running, n)
				break
			}
			g := &guest{n: n, priority: p, ready: make(chan struct{})}
			wait, ok := q.enqueue(now, g)
			same(t, want != nil, ok, i)
			if ok {
				require.Contains(t, []int64{1000, 50}, wait)
				want.g = g
				known = append(known, want)
			}
		case 3, 4:
			if len(running) > 0 {
				j := rng.IntN(len(running))
				n := running[j]
				running = slices.Delete(running, j, j+1)
				m.inFlight -= n
				m.grant(now)
				q.release(now, n)
			}
		case 5:
			if len(known) > 0 { // leaves, perhaps at the moment it got its places
				j := rng.IntN(len(known))
				g := known[j]
				known = slices.Delete(known, j, j+1)
				switch g.fate {
				case waits:
					m.drop(g, large)
					m.grant(now)
				case runs:
					m.inFlight -= g.n
					m.grant(now)
				}
				q.leave(now, g.g)
			}
		default:
			if rng.IntN(4) == 0 {
				limit := 1 + rng.Int64N(6)
				m.setLimit(now, limit)
				q.setLimit(now, limit)
			}
		}
		for j := len(known) - 1; j >= 0; j-- {
			g := known[j]
			same(t, g.fate, g.g.fate, i)
			told := false
			select {
			case <-g.g.ready:
				told = true
			default:
			}
			same(t, g.fate != waits, told, i)
			if g.fate == runs && rng.IntN(2) == 0 {
				running = append(running, g.n)
				known = slices.Delete(known, j, j+1)
			}
		}
		same(t, m.inFlight, q.inFlight, i)
		same(t, len(m.queue), q.waiting, i)
		same(t, m.stands(now), q.stands(now), i)
	}
}
