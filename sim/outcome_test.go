package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/sim"
)

// failing is a minute of a light load, in which every call to the dependency fails from the 10th to the 40th second.
func failing(as spillway.Outcome) sim.Scenario {
	return sim.Scenario{
		Name: "failing",
		Classes: []sim.Class{{Name: "all", Share: 1, Stages: []sim.Stage{{
			Name: "dependency", CPU: sim.Dist{Exp: 10 * time.Millisecond}, Wait: sim.Dist{Fixed: 20 * time.Millisecond}, As: as,
		}}}},
		Phases: []sim.Phase{
			{For: 10 * time.Second, Load: 0.3}, {For: 30 * time.Second, Load: 0.3, Measured: true}, {For: 20 * time.Second, Load: 0.3},
		},
		Events: []sim.Event{
			{At: 10 * time.Second, Stage: "dependency", Fails: 1}, {At: 40 * time.Second, Stage: "dependency", Fails: -1},
		},
	}
}

func TestBreakerOpensWhileADependencyFails(t *testing.T) {
	for _, as := range []spillway.Outcome{0, spillway.Dropped} {
		var brk *breaker.Breaker
		var states []breaker.State
		r, err := sim.Run(failing(as), 1, func(h *sim.Host) (*spillway.Gate, error) {
			var err error
			brk, err = breaker.New(&breaker.Options{Seed: 1})
			h.Every(time.Second, func(float64) { states = append(states, brk.Stats().State) })
			return spillway.New(brk), err
		})
		require.NoError(t, err)
		require.Zero(t, r.Goodput, "nothing succeeds")
		require.Greater(t, r.Shed, 0.95, "most are not even tried")
		require.Less(t, r.Failed, 0.03)
		require.InDelta(t, 1, r.Failed+r.Shed, 0.01, "one or the other")
		require.Equal(t, breaker.Closed, states[8])
		require.NotEqual(t, breaker.Closed, states[10], "it opens within a second")
		require.Equal(t, breaker.Closed, states[len(states)-1], "and closes behind it")
		require.LessOrEqual(t, r.Recovered, 20*time.Second)
		require.Positive(t, r.Recovered, "which takes the time it is open for")
		perSecond := 0.3 * r.Capacity
		require.InDelta(t, perSecond, served(r, 2, 10), 0.1*perSecond)
		require.InDelta(t, perSecond, served(r, 58, 60), 0.2*perSecond)
	}
}

// served is the mean rate of answers in time between two seconds.
func served(r *sim.Result, from, to float64) (mean float64) {
	n := 0
	for _, p := range r.Series {
		if p.At.Seconds() >= from && p.At.Seconds() < to {
			mean += p.Served
			n++
		}
	}
	return mean / float64(n)
}

func TestFailuresAreTheShareAskedFor(t *testing.T) {
	s := failing(0)
	s.Events[0].Fails, s.Events[1].Fails = 0.25, -0.25
	s.Classes[0].Stages[0].Fails = 0.05
	var outcomes [8]int
	r, err := sim.Run(s, 1, func(*sim.Host) (*spillway.Gate, error) {
		return spillway.New(outcome(func(o spillway.Outcome) { outcomes[o]++ })), nil
	})
	require.NoError(t, err)
	require.InDelta(t, 0.3, r.Failed, 0.03)
	require.InDelta(t, 0.7*0.3, r.Goodput, 0.02)
	all := float64(outcomes[spillway.Success] + outcomes[spillway.Failure])
	require.InDelta(t, 0.05*0.5+0.3*0.5, float64(outcomes[spillway.Failure])/all, 0.02, "the policy is told of each")
	require.Zero(t, outcomes[spillway.Dropped])

	s.Client.Retries = 3
	r, err = sim.Run(s, 1, bare)
	require.NoError(t, err)
	require.Greater(t, r.Amplification, 1.15, "clients ask again after a failure")
	require.Greater(t, r.Goodput, 0.25, "and most are served then in time")
}

// outcome is told the outcome of each request.
type outcome func(spillway.Outcome)

func (outcome) Admit(context.Context, spillway.Request) (spillway.Ticket, error) { return 0, nil }
func (o outcome) Done(_ spillway.Request, _ spillway.Ticket, r spillway.Result)  { o(r.Outcome) }
