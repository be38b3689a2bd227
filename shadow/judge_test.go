package shadow_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shadow"
)

// Every way a request can end, for a candidate that admits all and one that refuses all.
func TestShadowJudgesItsCandidates(t *testing.T) {
	const slo = 100 * time.Millisecond
	for _, c := range []struct {
		name            string
		res             spillway.Result
		admits, refuses shadow.Stats
	}{
		{
			name:    "in time",
			res:     spillway.Result{Outcome: spillway.Success, Latency: slo},
			refuses: shadow.Stats{LetThrough: 1, RegretRefused: 1},
		},
		{
			name:    "late",
			res:     spillway.Result{Outcome: spillway.Success, Latency: slo + 1},
			admits:  shadow.Stats{RegretAdmitted: 1},
			refuses: shadow.Stats{LetThrough: 1},
		},
		{
			name:    "failed",
			res:     spillway.Result{Outcome: spillway.Failure},
			admits:  shadow.Stats{RegretAdmitted: 1},
			refuses: shadow.Stats{LetThrough: 1},
		},
		{
			name:    "dropped",
			res:     spillway.Result{Outcome: spillway.Dropped},
			admits:  shadow.Stats{RegretAdmitted: 1},
			refuses: shadow.Stats{LetThrough: 1},
		},
		{
			name:    "ignored",
			res:     spillway.Result{Outcome: spillway.Ignored, Latency: time.Hour},
			refuses: shadow.Stats{LetThrough: 1},
		},
		{
			name:   "refused behind",
			res:    spillway.Result{Outcome: spillway.Refused},
			admits: shadow.Stats{RefusedBehind: 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := shadow.New(&slots{limit: 1}, &slots{limit: 0})
			require.NoError(t, s.SetSLO(slo))
			r := spillway.Request{Arrived: base}
			ticket, err := s.Admit(context.Background(), r)
			require.NoError(t, err)
			s.Done(r, ticket, c.res)

			c.admits.Admitted = 1
			c.refuses.WouldRefuse = 1
			c.refuses.ByReason = []spillway.Refusal{{Index: 1, Policy: "slots", Reason: "full", Count: 1}}
			require.Equal(t, []shadow.Stats{c.admits, c.refuses}, s.Stats())
		})
	}
}

func TestShadowEnforcesFractions(t *testing.T) {
	a, b := &slots{limit: 0}, &slots{limit: 0}
	s := shadow.New(a, b)
	require.NoError(t, s.Enforce(.2, .3))
	const n = 100_000
	refused := 0
	for i := range n {
		r := spillway.Request{Arrived: base.Add(time.Duration(i) * time.Microsecond)}
		ticket, err := s.Admit(context.Background(), r)
		if err != nil {
			require.ErrorIs(t, err, spillway.ErrRejected)
			refused++
			continue
		}
		s.Done(r, ticket, spillway.Result{Outcome: spillway.Success})
	}
	stats := s.Stats()
	require.InDelta(t, .2, float64(stats[0].Enforced)/n, .01)
	require.InDelta(t, .3, float64(stats[1].Enforced)/n, .01)
	require.EqualValues(t, refused, stats[0].Enforced+stats[1].Enforced)

	require.NoError(t, s.Enforce(0, 1))
	for i := range 1000 {
		_, err := s.Admit(context.Background(), spillway.Request{Arrived: base.Add(time.Duration(i))})
		require.Error(t, err)
	}
	require.NoError(t, s.Enforce())
	_, err := s.Admit(context.Background(), spillway.Request{Arrived: base})
	require.NoError(t, err)
}

func TestShadowRefusesWrongSettings(t *testing.T) {
	s := shadow.New(&slots{}, &slots{})
	require.NoError(t, s.Enforce(.7, .3))
	require.EqualError(t, s.Enforce(.7, .4), "shadow: fractions of all candidates must not exceed 1, got [0.7 0.4]")
	require.EqualError(t, s.Enforce(.1, .1, .1), "shadow: there must be at most 2 fractions, one for each candidate, got 3")
	require.EqualError(t, s.Enforce(-.1), "shadow: fraction must be from 0 to 1, got -0.1")
	require.EqualError(t, s.Enforce(0, math.NaN()), "shadow: fraction must be from 0 to 1, got NaN")
	require.EqualError(t, s.SetSLO(-1), "shadow: SLO must not be negative, got -1ns")
}

// Whatever the candidates say and however requests end, each candidate gets back what it gave.
func TestShadowOfManyGivesAllBack(t *testing.T) {
	candidates := make([]*slots, 8)
	policies := make([]spillway.Policy, 8)
	for i := range candidates {
		candidates[i] = &slots{limit: i * 2}
		policies[i] = candidates[i]
	}
	s := shadow.New(policies...)
	require.NoError(t, s.Enforce(slices.Repeat([]float64{.1}, len(policies))...))
	last := &slots{limit: 7}
	gate := spillway.New(s, last)
	rng := rand.New(rand.NewPCG(1, 2))
	var held []*spillway.Permit
	now := base
	for range 20_000 {
		now = now.Add(time.Microsecond)
		if rng.IntN(2) == 0 {
			if p, err := gate.Enter(context.Background(), spillway.Request{Arrived: now}); err == nil {
				held = append(held, &p)
			}
			continue
		}
		if len(held) > 0 {
			i := rng.IntN(len(held))
			held[i].DoneAt(now, spillway.Outcome(rng.IntN(4)), 0)
			held = append(held[:i], held[i+1:]...)
		}
	}
	for _, p := range held {
		p.DoneAt(now, spillway.Success, 0)
	}
	require.Zero(t, last.inFlight())
	for i, c := range s.Stats() {
		require.Zero(t, candidates[i].inFlight(), "candidate %d", i)
		require.Equal(t, gate.Stats().Admitted, c.Admitted-c.RefusedBehind+c.LetThrough, "what ran, seen by candidate %d", i)
		require.Equal(t, i < 4, c.Enforced > 0, "candidate %d", i)
	}
}
