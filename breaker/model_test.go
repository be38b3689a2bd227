package breaker_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/internal/race"
)

// A model is a Breaker written for its reader: it remembers all and reckons everything anew. It knows no jitter.
type model struct {
	o     breaker.Options
	now   time.Duration // since the first request
	state breaker.State
	mode  breaker.Mode
	era   int // changes with state and mode

	outcomes []outcome // of this time of being closed
	row      int
	calls    map[int]*modelCall
	hangFrom int64
	hangDue  time.Duration

	deadline, hint, openedAt, closedAt time.Duration
	openings                           int
	good, bad                          int // probes
	stale                              int
}

type outcome struct {
	at                    time.Duration
	failed, slow, ignored bool
}

type modelCall struct {
	era   int
	began time.Duration
	lease time.Duration // of a probe; 0 for others
}

func (m *model) slot(at time.Duration) int64 {
	span := m.o.Window / time.Duration(m.o.Buckets)
	return int64((at + span - 1) / span)
}

// counted returns the outcomes in the window.
func (m *model) counted() (c counts) {
	var known []outcome
	for _, o := range m.outcomes {
		if in := m.slot(o.at) > m.slot(m.now)-int64(m.o.Buckets); o.ignored && in {
			c.Ignored++
		} else if !o.ignored && (in || m.o.WindowCalls > 0) {
			known = append(known, o)
		}
	}
	if n := m.o.WindowCalls; n > 0 {
		known = known[max(0, len(known)-n):]
	}
	for _, o := range known {
		if o.failed {
			c.Failures++
		} else {
			c.Successes++
		}
		if o.slow {
			c.Slow++
		}
	}
	return c
}

func (m *model) hung() (n int64) {
	span := m.o.Window / time.Duration(m.o.Buckets)
	for _, c := range m.calls {
		slot := m.slot(c.began)
		age := m.now - time.Duration(slot)*span // of the youngest call of that slot
		if c.lease == 0 && slot >= m.hangFrom && age >= m.o.SlowCall && age < m.o.SlowCall+m.o.Window {
			n++
		}
	}
	return n
}

func (m *model) judge() {
	if m.state != breaker.Closed || m.mode != breaker.Auto {
		return
	}
	c := m.counted()
	all := c.Successes + c.Failures
	slow, hung := c.Slow, int64(0)
	if m.o.SlowCall > 0 {
		hung = m.hung()
	}
	atLeast := func(n, all int64, share float64) bool {
		return all >= int64(m.o.MinCalls) && float64(n) >= share*float64(all)-1e-9
	}
	if m.row >= m.o.Consecutive || atLeast(c.Failures, all, m.o.FailureRate) ||
		m.o.SlowCall > 0 && atLeast(slow+hung, all+hung, m.o.SlowRate) {
		m.open(m.now)
	}
}

func (m *model) open(at time.Duration) {
	if m.state == breaker.Closed {
		m.openings = m.remembered(at)
	}
	d := m.o.OpenFor
	for range m.openings {
		d = min(2*d, m.o.MaxOpen)
	}
	m.openedAt, m.deadline = at, max(at+d, min(m.hint, at+m.o.MaxOpen))
	m.openings++
	m.enter(breaker.Open)
}

func (m *model) remembered(at time.Duration) int {
	return int(max(0, int64(m.openings)-int64((at-m.closedAt)/m.o.Window)))
}

func (m *model) enter(s breaker.State) {
	m.state = s
	m.era++
	m.good, m.bad = 0, 0
	if s == breaker.Closed {
		m.outcomes, m.row, m.hangDue = nil, 0, 0
	}
}

func (m *model) probes() (probes []*modelCall) {
	for _, c := range m.calls {
		if c.lease > 0 && c.era == m.era && m.state == breaker.HalfOpen {
			probes = append(probes, c)
		}
	}
	slices.SortFunc(probes, func(a, b *modelCall) int { return cmp.Compare(a.lease, b.lease) })
	return probes
}

// pass lets time go by.
func (m *model) pass() {
	for m.mode == breaker.Auto {
		probes := m.probes()
		switch {
		case m.state == breaker.Open && m.now >= m.deadline:
			m.enter(breaker.HalfOpen)
		case len(probes) > 0 && probes[0].lease <= m.now:
			probes[0].era = -1
			m.verdict(false, probes[0].lease)
		default:
			return
		}
	}
}

func (m *model) verdict(good bool, at time.Duration) {
	if good {
		m.good++
	} else {
		m.bad++
	}
	need := m.o.ProbeSuccesses
	switch {
	case m.bad > 0 && (m.o.ProbeFailureRate == 0 || float64(m.bad) >= m.o.ProbeFailureRate*float64(need)-1e-9):
		m.open(at)
	case m.good+m.bad >= need:
		m.closedAt = at
		m.hangFrom = m.slot(at)
		m.enter(breaker.Closed)
	}
}

func (m *model) admit(id int) bool {
	m.pass()
	span := m.o.Window / time.Duration(m.o.Buckets)
	if m.state == breaker.Closed && m.o.SlowCall > 0 && m.now >= m.hangDue {
		for m.hangDue = m.o.SlowCall; m.hangDue <= m.now; m.hangDue += span {
		}
		m.judge()
	}
	switch m.state {
	case breaker.Closed:
		m.calls[id] = &modelCall{era: m.era, began: m.now}
	case breaker.HalfOpen:
		if len(m.probes()) >= m.o.Probes {
			return false
		}
		m.calls[id] = &modelCall{era: m.era, began: m.now, lease: m.now + m.o.ProbeLease}
	default:
		return false
	}
	return true
}

func (m *model) done(id int, res spillway.Outcome, peace time.Duration) {
	c := m.calls[id]
	if c.lease > 0 {
		m.pass()
	}
	if peace > 0 && res != spillway.Refused {
		m.hear(peace)
	}
	delete(m.calls, id)
	failed := res == spillway.Failure || res == spillway.Dropped
	slow := m.o.SlowCall > 0 && m.now-c.began > m.o.SlowCall
	switch {
	case res == spillway.Refused:
	case c.era != m.era:
		m.stale++
	case c.lease > 0:
		if res != spillway.Ignored {
			m.verdict(!failed && !slow, m.now)
		}
	case res == spillway.Ignored:
		m.outcomes = append(m.outcomes, outcome{at: m.now, ignored: true})
	default:
		m.outcomes = append(m.outcomes, outcome{at: m.now, failed: failed, slow: slow})
		if m.row++; !failed {
			m.row = 0
		}
		if failed || slow {
			m.judge()
		}
	}
}

func (m *model) byHand(mode breaker.Mode) {
	m.pass()
	m.mode, m.openings, m.hint, m.closedAt = mode, 0, -1<<60, m.now
	m.hangFrom = m.slot(m.now) + 1
	if mode == breaker.ForcedOpen {
		m.enter(breaker.Open)
		return
	}
	m.enter(breaker.Closed)
}

func (m *model) hear(peace time.Duration) {
	m.pass()
	m.hint = max(m.hint, m.now+min(peace, m.o.MaxOpen))
	if m.state == breaker.Open && m.mode == breaker.Auto {
		m.deadline = max(m.deadline, min(m.hint, m.openedAt+m.o.MaxOpen))
	}
}

// randomOptions returns options with all defaults written out.
func randomOptions(r *rand.Rand) breaker.Options {
	o := breaker.Options{
		Window: time.Duration(1+r.IntN(4)) * 4 * time.Second, Buckets: 1 << r.IntN(4),
		MinCalls: 1 + r.IntN(8), FailureRate: 0.25 * float64(1+r.IntN(4)), Consecutive: 2 + r.IntN(8), SlowRate: 0.5,
		OpenFor: time.Duration(1+r.IntN(5)) * time.Second, MaxOpen: 20 * time.Second, Jitter: off,
		Probes: 1 + r.IntN(4), Seed: 1,
	}
	o.ProbeSuccesses, o.ProbeLease = 1+r.IntN(4), time.Duration(1+r.IntN(8))*time.Second
	if r.IntN(2) == 0 {
		o.ProbeFailureRate = 0.5
	}
	if r.IntN(3) == 0 {
		o.WindowCalls = o.MinCalls + r.IntN(8)
	}
	if r.IntN(2) == 0 {
		o.SlowCall = time.Duration(1+r.IntN(6000)) * time.Millisecond
	}
	return o
}

// TestRandomOperationsMatchTheModel runs 500 random histories through a Breaker and the model, and compares all they tell.
func TestRandomOperationsMatchTheModel(t *testing.T) {
	histories := uint64(500)
	if race.Enabled {
		histories = 50 // one goroutine: nothing to race
	}
	for seed := range histories {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { compareWithModel(t, rand.New(rand.NewPCG(seed, 1)), 400) })
	}
}

func compareWithModel(t *testing.T, r *rand.Rand, steps int) {
	o := randomOptions(r)
	g, b := newBreakerRig(t, &o)
	m := &model{o: o, state: breaker.Closed, mode: breaker.Auto, calls: map[int]*modelCall{}, hint: -1 << 60, closedAt: -1 << 60, hangFrom: -1 << 60}
	held := map[int]call{}
	g.call(spillway.Ignored) // the first request is where time begins
	require.True(t, m.admit(-1))
	m.done(-1, spillway.Ignored, 0)
	bias := r.IntN(10)
	for id := range steps {
		switch op := r.IntN(100); {
		case op < 45:
			c, err := g.admit()
			require.Equal(t, m.admit(id), err == nil, "admit %d", id)
			if err == nil {
				held[id] = c
			} else {
				checkRetryAfter(t, m, err)
			}
		case op < 80:
			if id, ok := anyKey(r, held); ok {
				res := spillway.Outcome(r.IntN(5))
				if r.IntN(10) < bias {
					res = spillway.Failure
				}
				peace := time.Duration(0)
				if r.IntN(10) == 0 {
					peace = time.Duration(r.IntN(32)-1) * time.Second
				}
				g.doneRetryAfter(held[id], res, peace)
				m.done(id, res, peace)
				delete(held, id)
			}
		case op < 96:
			d := time.Duration(r.IntN(1500)) * time.Millisecond
			if r.IntN(20) == 0 {
				d = time.Duration(r.IntN(100)) * time.Second
			}
			g.now, m.now = g.now.Add(d), m.now+d
		case op < 97:
			_ = b.SetState(g.now, breaker.Closed, 0)
			m.byHand(breaker.Auto)
		case op < 98:
			mode := []breaker.Mode{breaker.Auto, breaker.Auto, breaker.ForcedOpen, breaker.ForcedClosed}[r.IntN(4)]
			require.NoError(t, b.SetMode(g.now, mode))
			if m.mode != mode {
				m.byHand(mode)
			}
		}
		compare(t, m, b.StatsAt(g.now))
	}
	for id, c := range held {
		g.done(c, spillway.Refused)
		m.done(id, spillway.Refused, 0)
	}
	require.Zero(t, b.StatsAt(g.now).InFlight)
}

// anyKey returns a key of held by chance, but the same in each run.
func anyKey(r *rand.Rand, held map[int]call) (int, bool) {
	keys := make([]int, 0, len(held))
	for k := range held {
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return 0, false
	}
	slices.Sort(keys)
	return keys[r.IntN(len(keys))], true
}

func checkRetryAfter(t *testing.T, m *model, err error) {
	t.Helper()
	got := retryAfter(t, err)
	if m.mode == breaker.ForcedOpen {
		require.Zero(t, got)
		return
	}
	if m.state == breaker.HalfOpen { // leases come and go, the answer may be that of 100 ms ago
		require.LessOrEqual(t, got, m.o.ProbeLease)
		return
	}
	want := m.deadline - m.now
	require.InDelta(t, want.Seconds(), got.Seconds(), 0.1)
}

func compare(t *testing.T, m *model, s breaker.Stats) {
	t.Helper()
	ahead := *m // a copy, since asking must not move the model on
	ahead.calls = map[int]*modelCall{}
	for id, c := range m.calls {
		ahead.calls[id] = new(modelCall)
		*ahead.calls[id] = *c
	}
	ahead.pass()
	require.Equal(t, ahead.state, s.State)
	require.Equal(t, m.mode, s.Mode)
	require.EqualValues(t, m.stale, s.Stale)
	require.Len(t, ahead.probes(), s.Probes)
	if s.State == breaker.Closed {
		require.Equal(t, m.counted(), countsOf(s))
		require.EqualValues(t, m.row, s.Consecutive)
		require.Equal(t, m.remembered(m.now), s.Reopenings)
		if m.o.SlowCall > 0 {
			require.Equal(t, m.hung(), s.Hung)
		}
	}
	inFlight := len(ahead.probes())
	for _, c := range m.calls {
		if c.lease == 0 {
			inFlight++
		}
	}
	require.EqualValues(t, inFlight, s.InFlight)
}
