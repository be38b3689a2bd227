package shadow_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/policytest"
	"github.com/spillway-go/spillway/shadow"
)

func TestShadowAdmitsWhatItsPolicyRefuses(t *testing.T) {
	p := &probe{}
	dry := shadow.New(p)
	gate := spillway.New(dry)

	seen, err := gate.Enter(context.Background(), spillway.Request{Key: "seen"})
	require.NoError(t, err)
	p.refuse = errFull
	unseen, err := gate.Enter(context.Background(), spillway.Request{Key: "unseen"})
	require.NoError(t, err)
	p.refuse = context.Canceled
	gone, err := gate.Enter(context.Background(), spillway.Request{Key: "gone"})
	require.NoError(t, err)
	require.Equal(t, []string{"admits seen", "refuses unseen", "refuses gone"}, p.take())

	unseen.Done(spillway.Failure)
	gone.Done(spillway.Failure)
	require.Empty(t, p.take(), "who was refused is not ended")
	seen.DoneAt(seen.Arrived(), spillway.Dropped, 0)
	require.Equal(t, []string{"ends seen as 1: dropped after 0s"}, p.take())

	require.Equal(t, []shadow.Stats{{
		Admitted: 1, WouldRefuse: 1, Cancelled: 1, LetThrough: 2, RegretAdmitted: 1,
		ByReason: []spillway.Refusal{{Policy: "slots", Reason: "full", Count: 1}},
	}}, dry.Stats())
	require.Equal(t, spillway.GateStats{Admitted: 3, Failed: 2, Dropped: 1}, gate.Stats())
}

func TestShadowGivesBack(t *testing.T) {
	inner := &slots{limit: 1}
	gate := spillway.New(shadow.New(inner), &slots{})
	for range 3 {
		_, err := gate.Enter(context.Background(), spillway.Request{})
		require.Error(t, err)
		require.Zero(t, inner.inFlight())
	}
}

func TestShadowOfAShadow(t *testing.T) {
	inner := &slots{limit: 1}
	first := shadow.New(inner)
	second := shadow.New(first)
	gate := spillway.New(second)
	var permits []*spillway.Permit
	for range 3 {
		p, err := gate.Enter(context.Background(), spillway.Request{})
		require.NoError(t, err)
		permits = append(permits, &p)
	}
	for _, p := range permits {
		p.Done(spillway.Success)
	}
	require.Zero(t, inner.inFlight())
	require.EqualValues(t, 2, first.Stats()[0].WouldRefuse)
	require.EqualValues(t, 2, first.Stats()[0].RegretRefused)
	require.Equal(t, []shadow.Stats{{Admitted: 3}}, second.Stats())
}

func TestShadowPanicsOnMisuse(t *testing.T) {
	p := &slots{}
	var none *slots
	require.PanicsWithValue(t, "shadow: New: candidate 0 is nil", func() { shadow.New(none) })
	require.PanicsWithValue(t, "shadow: New: candidate 1 is nil", func() { shadow.New(p, nil) })
	require.PanicsWithValue(t, "shadow: New: from 1 to 8 candidates, got 0", func() { shadow.New() })
	require.PanicsWithValue(t, "shadow: New: from 1 to 8 candidates, got 9",
		func() { shadow.New(p, p, p, p, p, p, p, p, p) })
}

func TestShadowBoundsReasons(t *testing.T) {
	i := 0
	dry := shadow.New(refuser(func() error {
		i++
		return &spillway.Rejection{Policy: "p", Reason: fmt.Sprint(i)}
	}))
	for range 100 {
		_, err := dry.Admit(context.Background(), spillway.Request{Arrived: base})
		require.NoError(t, err)
	}
	s := dry.Stats()[0]
	require.EqualValues(t, 100, s.WouldRefuse)
	require.Len(t, s.ByReason, 65)
	require.Equal(t, spillway.Refusal{Policy: "other", Reason: "other", Count: 36}, s.ByReason[64])
}

func TestShadowUnderConcurrency(t *testing.T) {
	inner := &slots{limit: 2}
	dry := shadow.New(inner)
	gate := spillway.New(dry)
	var all sync.WaitGroup
	for seed := range uint64(4) {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 6))
			var held []*spillway.Permit
			for range 2000 {
				if rng.IntN(2) == 0 && len(held) < 3 {
					p, err := gate.Enter(context.Background(), spillway.Request{})
					if err != nil {
						t.Error(err)
						return
					}
					held = append(held, &p)
				} else if len(held) > 0 {
					held[0].Done(spillway.Success)
					held = held[1:]
				}
			}
			for _, p := range held {
				p.Done(spillway.Success)
			}
		})
	}
	all.Wait()
	require.Zero(t, inner.inFlight())
	s := dry.Stats()[0]
	require.Equal(t, gate.Stats().Admitted, s.Admitted+s.WouldRefuse)
	require.Positive(t, s.WouldRefuse)
}

func TestShadowKeepsTheContract(t *testing.T) {
	policytest.Run(t, func() spillway.Policy { return shadow.New(&slots{limit: 1 << 30}) }, nil)
	policytest.Run(t, func() spillway.Policy { return shadow.New(&slots{limit: 1 << 30}, &slots{limit: 3}) }, nil)
	policytest.Run(t, func() spillway.Policy { return enforcing(t, &slots{limit: 2}, &slots{limit: 5}) }, nil)
}

// enforcing returns a shadow that lets its last candidate refuse all.
func enforcing(t *testing.T, candidates ...spillway.Policy) *shadow.Shadow {
	t.Helper()
	s := shadow.New(candidates...)
	fractions := make([]float64, len(candidates))
	fractions[len(candidates)-1] = 1
	require.NoError(t, s.Enforce(fractions...))
	return s
}

func TestShadowAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("allocations are not counted under the race detector: it adds its own")
	}
	for _, limit := range []int{0, 1} {
		gate := spillway.New(shadow.New(&slots{limit: limit}), shadow.New(&slots{limit: limit}, &slots{limit: 1}),
			enforcing(t, &slots{limit: 1}, &slots{limit: limit}))
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			p, _ := gate.Enter(context.Background(), spillway.Request{})
			p.Done(spillway.Success)
		}), "limit %d", limit)
	}
}
