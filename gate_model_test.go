package spillway_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

// A modelGate says what a gate of slots does, as plainly as can be.
type modelGate struct {
	limits  []int
	used    []int
	stats   spillway.GateStats
	seen    map[int]int // refusals by policy, as indices of stats.ByReason
	permits []modelPermit
}

type modelPermit struct {
	p     *spillway.Permit
	ended bool
}

// enter returns which policy refuses, or -1.
func (m *modelGate) enter() int {
	for i, limit := range m.limits {
		if m.used[i] < limit {
			continue
		}
		n, ok := m.seen[i]
		if !ok {
			n = len(m.stats.ByReason)
			m.seen[i] = n
			m.stats.ByReason = append(m.stats.ByReason, spillway.Refusal{Index: i, Policy: modelName(i), Reason: "full"})
		}
		m.stats.ByReason[n].Count++
		m.stats.Refused++
		return i
	}
	for i := range m.used {
		m.used[i]++
	}
	m.stats.Admitted++
	m.stats.InFlight++
	return -1
}

func (m *modelGate) done(o spillway.Outcome) {
	for i := range m.used {
		m.used[i]--
	}
	m.stats.InFlight--
	switch o {
	case spillway.Success:
		m.stats.Succeeded++
	case spillway.Failure:
		m.stats.Failed++
	case spillway.Dropped:
		m.stats.Dropped++
	default:
		m.stats.Ignored++
	}
}

func modelName(i int) string { return fmt.Sprint("policy ", i) }

// A named slots refuses under a name of its own, and checks what it is told when a request ends.
type named struct {
	slots
	t       testing.TB
	refusal *spillway.Rejection
	told    map[string]int // by outcome
	latency time.Duration  // of the last end
}

func (s *named) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	if _, err := s.slots.Admit(ctx, r); err != nil {
		return 0, s.refusal
	}
	return spillway.Ticket(r.Cost), nil
}

func (s *named) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	if int(t) != r.Cost {
		s.t.Errorf("a request of cost %d was ended as %d", r.Cost, t)
	}
	s.told[res.Outcome.String()]++
	s.latency = res.Latency
	s.slots.Done(r, t, res)
}

// A gateScript drives a gate and its model with the same operations.
type gateScript struct {
	t        testing.TB
	model    modelGate
	policies []*named
	gate     *spillway.Gate
	now      time.Time
	entered  int
}

func newGateScript(t testing.TB, limits []int) *gateScript {
	s := &gateScript{t: t, now: base, model: modelGate{limits: limits, used: make([]int, len(limits)), seen: map[int]int{}}}
	var policies []spillway.Policy
	for i, limit := range limits {
		p := &named{
			slots:   slots{limit: limit},
			t:       t,
			refusal: &spillway.Rejection{Policy: modelName(i), Reason: "full"},
			told:    map[string]int{},
		}
		s.policies = append(s.policies, p)
		policies = append(policies, p)
	}
	s.gate = spillway.New(policies...)
	return s
}

func (s *gateScript) enter() {
	s.entered++
	s.now = s.now.Add(time.Millisecond)
	p, err := s.gate.Enter(context.Background(), spillway.Request{Cost: s.entered, Arrived: s.now})
	if i := s.model.enter(); i >= 0 {
		require.Same(s.t, s.policies[i].refusal, err)
	} else {
		require.NoError(s.t, err)
	}
	// The permit of a refused request is kept too: ending it must do nothing.
	s.model.permits = append(s.model.permits, modelPermit{p: &p, ended: err != nil})
}

// done ends the i-th permit, which may have ended before.
func (s *gateScript) done(i int, o spillway.Outcome) {
	p := &s.model.permits[i]
	latency := max(s.now.Sub(p.p.Arrived()), 0)
	p.p.DoneAt(s.now, o, 0)
	if p.ended {
		return
	}
	p.ended = true
	s.model.done(o)
	for _, policy := range s.policies {
		require.Equal(s.t, latency, policy.latency)
	}
}

func (s *gateScript) check() {
	require.Equal(s.t, s.model.stats, s.gate.Stats())
	for i, p := range s.policies {
		require.Equal(s.t, s.model.used[i], p.inFlight(), "policy %d", i)
	}
}

// finish ends everything and checks that nothing is left, and that each policy was told what happened.
func (s *gateScript) finish() {
	for i := range s.model.permits {
		s.done(i, spillway.Dropped)
	}
	s.check()
	stats := s.gate.Stats()
	require.Zero(s.t, stats.InFlight)
	behind := int64(0) // refusals behind policy i
	for i := len(s.policies) - 1; i >= 0; i-- {
		told := s.policies[i].told
		require.Zero(s.t, s.policies[i].inFlight())
		require.EqualValues(s.t, stats.Succeeded, told["success"])
		require.EqualValues(s.t, stats.Failed, told["failure"])
		require.EqualValues(s.t, stats.Dropped, told["dropped"])
		require.EqualValues(s.t, stats.Ignored, told["ignored"])
		require.EqualValues(s.t, behind, told["refused"])
		if n, ok := s.model.seen[i]; ok {
			behind += stats.ByReason[n].Count
		}
	}
}

func TestGateMatchesTheModel(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 7))
		limits := make([]int, rng.IntN(9))
		for i := range limits {
			limits[i] = 1 + rng.IntN(12)
		}
		s := newGateScript(t, limits)
		for range 300 {
			if n := len(s.model.permits); n == 0 || rng.IntN(5) < 3 {
				s.enter()
			} else {
				s.done(n-1-min(rng.IntN(n), rng.IntN(30)), spillway.Outcome(rng.IntN(7)))
			}
			s.check()
		}
		s.finish()
	}
}

// FuzzGate runs a script: a byte of limits, then a byte for each operation. Whatever the script, nothing stays in flight.
func FuzzGate(f *testing.F) {
	f.Add([]byte{0x03, 0x12, 0x00, 0x00, 0x00, 0x81, 0x00, 0xff})
	f.Add([]byte{0x08, 0x01, 0x80, 0x80, 0x00})
	f.Add([]byte{0x00, 0x00, 0x91, 0xa2, 0xb3, 0xc4})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) < 2 || len(script) > 4096 {
			return
		}
		limits := make([]int, script[0]%9)
		for i := range limits {
			limits[i] = int(script[1]>>(i%4*2)) % 8
		}
		s := newGateScript(t, limits)
		for _, op := range script[2:] {
			if op < 0x80 || len(s.model.permits) == 0 {
				s.enter()
				continue
			}
			back := int(op>>3) & 0xf // how long ago the request entered
			s.done(max(len(s.model.permits)-1-back, 0), spillway.Outcome(op&7))
			s.now = s.now.Add(-time.Duration(op&1) * time.Second) // clocks are set back
		}
		s.finish()
	})
}
