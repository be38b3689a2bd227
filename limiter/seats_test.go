package limiter

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/waitlist"
)

// A listModel is a queue for places, with a slice of everybody and no cleverness.
type listModel struct {
	limit, inFlight int64
	maxQueue        int
	order           Order
	interval        int64
	stood, at       int64
	turns           int           // of waiting guests
	queue           []*modelGuest // in the order in which they came
}

type modelGuest struct {
	g    *waitlist.Guest // the one of the list under test
	n    int64
	p    spillway.Priority
	fate waitlist.Fate
}

// pass counts the time up to now.
func (m *listModel) pass(now int64) {
	for ; m.at < now; m.at++ {
		if len(m.queue) > 0 {
			m.stood = min(m.stood+1, 2*m.interval)
		} else {
			m.stood = max(m.stood-1, 0)
		}
	}
}

func (m *listModel) stands(now int64) bool {
	m.pass(now)
	return m.order == Adaptive && len(m.queue) > 0 && m.stood > m.interval
}

// next returns the one whose turn it is. One turn in a thousand is that of the lowest priority.
func (m *listModel) next(now int64) *modelGuest {
	var best *modelGuest
	for _, g := range m.queue {
		last := m.order == LIFO || m.stands(now)
		first := best == nil || g.p > best.p
		if m.turns%1000 == 999 {
			first = best == nil || g.p < best.p
		}
		if first || last && g.p == best.p {
			best = g
		}
	}
	return best
}

func (m *listModel) drop(g *modelGuest, f waitlist.Fate) {
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
		m.turns++
		m.drop(g, waitlist.Runs)
	}
}

// ask returns the guest who waits, or nil and whether it got its places.
func (m *listModel) ask(now, n int64, p spillway.Priority) (*modelGuest, bool) {
	m.pass(now)
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
		m.drop(lowest, waitlist.Ousted)
	}
	g := &modelGuest{n: n, p: p}
	m.queue = append(m.queue, g)
	m.grant(now)
	return g, false
}

func (m *listModel) setLimit(now, limit int64) {
	m.pass(now)
	m.limit = limit
	for _, g := range slices.Clone(m.queue) {
		if g.n > limit {
			m.drop(g, waitlist.Large)
		}
	}
	m.grant(now)
}

func TestWaitlistAgainstModel(t *testing.T) {
	for _, order := range []Order{FIFO, LIFO, Adaptive} {
		seeds(t, 20, func(t *testing.T, rng *rand.Rand) {
			limit, maxQueue := 1+rng.Int64N(6), 1+rng.IntN(8)
			q := &seats{limit: limit, list: waitlist.List{
				MaxQueue: maxQueue, Order: waitlist.Order(order), MaxWait: math.MaxInt64, Target: math.MaxInt64 - 1, Interval: 100,
			}}
			m := &listModel{limit: limit, maxQueue: maxQueue, order: order, interval: 100}
			runModel(t, rng, q, m)
		})
	}
}

func runModel(t *testing.T, rng *rand.Rand, q *seats, m *listModel) {
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
			same(t, got, q.tryNow(n, p), i)
			if got {
				running = append(running, n)
				break
			}
			g, wait, v := q.enqueue(now, waitlist.Guest{N: n, Priority: p}, math.MaxInt64)
			ok := v == waitlist.Queued
			same(t, want != nil, ok, i)
			if ok {
				require.Contains(t, []int64{math.MaxInt64, math.MaxInt64 - 1}, wait)
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
				case waitlist.Waits:
					m.pass(now)
					m.drop(g, waitlist.Large)
				case waitlist.Runs:
					m.inFlight -= g.n
				}
				m.grant(now)
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
			same(t, g.fate, g.g.Fate, i)
			told := false
			select {
			case <-g.g.Ready:
				told = true
			default:
			}
			same(t, g.fate != waitlist.Waits, told, i)
			if g.fate == waitlist.Runs && rng.IntN(2) == 0 {
				running = append(running, g.n)
				known = slices.Delete(known, j, j+1)
			}
		}
		same(t, m.inFlight, q.inFlight, i)
		same(t, len(m.queue), q.list.Len(), i)
		same(t, m.stands(now), q.list.Stands(now), i)
	}
}
