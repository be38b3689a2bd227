package breaker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

// TestGenerationsWrap shows that a ticket never has all bits set, and that a generation comes again only after all others.
func TestGenerationsWrap(t *testing.T) {
	m := newMachine(1)
	m.gen = maxGen - 1
	m.enter(Open, 0, byHand)
	require.Zero(t, m.gen)
	require.NotZero(t, ^(ticket(maxGen-1, -1) | probeBit | sharedBit))
}

// TestLateComersGetNoProbe shows that a call which saw room for a probe, and lost the race for it, is refused.
func TestLateComersGetNoProbe(t *testing.T) {
	o, err := Options{Probes: 2}.withDefaults()
	require.NoError(t, err)
	m := newMachine(1)
	m.open(&o, 0, byConsecutive)
	m.settle(&o, m.deadline)
	for range 2 {
		_, ok := m.probe(&o, m.deadline)
		require.True(t, ok)
	}
	_, ok := m.probe(&o, m.deadline)
	require.False(t, ok)
}

// TestKeyMayBeEvictedMeanwhile shows that a call whose key is forgotten while it is let in goes to the shared policy.
func TestKeyMayBeEvictedMeanwhile(t *testing.T) {
	r, err := NewKeyed(nil)
	require.NoError(t, err)
	req := spillway.Request{Key: "a", Arrived: time.Unix(0, 0)}
	first, err := r.Admit(context.Background(), req)
	require.NoError(t, err)
	r.find("a").dead.Store(true)
	second, err := r.Admit(context.Background(), req)
	require.NoError(t, err)
	own := r.find("a").member.(*Breaker)
	require.EqualValues(t, 1, own.StatsAt(req.Arrived).InFlight)
	r.Done(req, first, spillway.Result{Outcome: spillway.Failure})
	r.Done(req, second, spillway.Result{Outcome: spillway.Failure})
	require.EqualValues(t, 0, own.StatsAt(req.Arrived).InFlight)
	require.EqualValues(t, 1, own.StatsAt(req.Arrived).Failures)
	require.EqualValues(t, 1, r.shared.(*Breaker).StatsAt(req.Arrived).Failures)
	require.EqualValues(t, 1, r.Stats().Overflowed)
}
