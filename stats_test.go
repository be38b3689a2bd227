package spillway_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

func TestStatsCountsOutcomes(t *testing.T) {
	ps, policies, _ := probes(2)
	gate := spillway.New(policies...)
	for o, n := range map[spillway.Outcome]int{
		spillway.Success: 1, spillway.Failure: 2, spillway.Dropped: 3, spillway.Ignored: 4,
	} {
		for range n {
			p, err := gate.Enter(context.Background(), spillway.Request{})
			require.NoError(t, err)
			p.Done(o)
		}
	}
	for range 5 {
		_, err := gate.Enter(context.Background(), spillway.Request{})
		require.NoError(t, err)
	}
	for i, probe := range ps {
		probe.refuse = &spillway.Rejection{Policy: fmt.Sprint("p", i), Reason: "asked to"}
		for range 6 + i {
			_, err := gate.Enter(context.Background(), spillway.Request{})
			require.Error(t, err)
		}
		probe.refuse = nil
	}
	require.Equal(t, spillway.GateStats{
		Admitted: 15, InFlight: 5, Succeeded: 1, Failed: 2, Dropped: 3, Ignored: 4, Refused: 13,
		ByReason: []spillway.Refusal{
			{Index: 0, Policy: "p0", Reason: "asked to", Count: 6},
			{Index: 1, Policy: "p1", Reason: "asked to", Count: 7},
		},
	}, gate.Stats())
}

func TestRefusalsAreCountedByIndexPolicyAndReason(t *testing.T) {
	ps, policies, _ := probes(2)
	gate := spillway.New(policies...)
	var want []spillway.Refusal
	for i := range 2 {
		for _, policy := range []string{"p", "q"} {
			for _, reason := range []string{"r", "s"} {
				want = append(want, spillway.Refusal{Index: i, Policy: policy, Reason: reason, Count: 2})
			}
		}
	}
	for range 2 {
		for _, w := range want {
			// A Rejection of its own each time: equal words count as one.
			ps[0].refuse, ps[1].refuse = nil, nil
			ps[w.Index].refuse = &spillway.Rejection{Policy: w.Policy, Reason: w.Reason}
			_, err := gate.Enter(context.Background(), spillway.Request{})
			require.ErrorIs(t, err, spillway.ErrRejected)
		}
	}
	require.Equal(t, want, gate.Stats().ByReason)
	require.EqualValues(t, 16, gate.Stats().Refused)
}

// Reasons, and names, that are no constants do not make a gate grow without bound.
func TestReasonsBeyondTheBoundAreOther(t *testing.T) {
	ps, policies, _ := probes(2)
	gate := spillway.New(policies...)
	refuse := func(index, i int) {
		ps[0].refuse, ps[1].refuse = nil, nil
		ps[index].refuse = &spillway.Rejection{Policy: fmt.Sprint("policy ", i), Reason: fmt.Sprint("reason ", i)}
		_, err := gate.Enter(context.Background(), spillway.Request{})
		require.Error(t, err)
	}
	for range 2 {
		for i := range 1000 {
			refuse(0, i)
		}
	}
	for i := range 10 {
		refuse(1, i)
	}
	s := gate.Stats()
	require.EqualValues(t, 2010, s.Refused)
	require.Len(t, s.ByReason, 66)
	for i, r := range s.ByReason[:64] {
		want := spillway.Refusal{Index: 0, Policy: fmt.Sprint("policy ", i), Reason: fmt.Sprint("reason ", i), Count: 2}
		require.Equal(t, want, r)
	}
	require.Equal(t, spillway.Refusal{Index: 0, Policy: "other", Reason: "other", Count: 2000 - 128}, s.ByReason[64])
	require.Equal(t, spillway.Refusal{Index: 1, Policy: "other", Reason: "other", Count: 10}, s.ByReason[65])
}

// Each snapshot, taken while requests go on, is possible: nothing negative, nothing falling, sums within what ran.
func TestStatsUnderConcurrency(t *testing.T) {
	const clients, each = 6, 3000
	limit := &slots{limit: 3}
	gate := spillway.New(&slots{limit: clients}, limit)
	var all sync.WaitGroup
	var running atomic.Int64
	running.Store(clients)
	for seed := range uint64(clients) {
		all.Go(func() {
			defer running.Add(-1)
			rng := rand.New(rand.NewPCG(seed, 5))
			for range each {
				p, err := gate.Enter(context.Background(), spillway.Request{})
				if err == nil {
					p.Done(spillway.Outcome(rng.IntN(4)))
				}
			}
		})
	}
	var last spillway.GateStats
	for running.Load() > 0 {
		s := gate.Stats()
		requirePossible(t, s, last, clients)
		last = s
	}
	all.Wait()
	s := gate.Stats()
	require.Zero(t, s.InFlight)
	require.Zero(t, limit.inFlight())
	require.EqualValues(t, clients*each, s.Admitted+s.Refused)
	require.Equal(t, s.Admitted, s.Succeeded+s.Failed+s.Dropped+s.Ignored)
}

// A snapshot that read beginnings before ends would now and then miss the beginning of a request whose end it saw.
func TestInFlightIsNeverNegative(t *testing.T) {
	gate := spillway.New()
	var stop atomic.Bool
	var all sync.WaitGroup
	all.Go(func() {
		for !stop.Load() {
			p, _ := gate.Enter(context.Background(), spillway.Request{Arrived: base})
			p.DoneAt(base, spillway.Ignored, 0)
		}
	})
	least := int64(0)
	for range 30_000 {
		least = min(least, gate.Stats().InFlight)
	}
	stop.Store(true)
	all.Wait()
	require.Zero(t, least)
}

func requirePossible(t *testing.T, s, last spillway.GateStats, clients int64) {
	t.Helper()
	require.GreaterOrEqual(t, s.InFlight, int64(0))
	ended := s.Succeeded + s.Failed + s.Dropped + s.Ignored
	require.Equal(t, s.InFlight, s.Admitted-ended)
	require.GreaterOrEqual(t, s.Admitted, last.Admitted)
	require.GreaterOrEqual(t, ended, last.Succeeded+last.Failed+last.Dropped+last.Ignored)
	require.GreaterOrEqual(t, s.Refused, last.Refused)
	require.LessOrEqual(t, s.Cancelled, clients)
	var sum int64
	for _, r := range s.ByReason {
		sum += r.Count
	}
	require.Equal(t, s.Refused, sum)
}

// The first refusals for a reason may come at once: they make one counter, and none is lost.
func TestConcurrentFirstRefusals(t *testing.T) {
	reasons := [4]*spillway.Rejection{}
	for i := range reasons {
		reasons[i] = &spillway.Rejection{Policy: "probe", Reason: fmt.Sprint("reason ", i)}
	}
	for range 50 {
		var n atomic.Uint64
		gate := spillway.New(refuser(func() error { return reasons[n.Add(1)%4] }))
		var all sync.WaitGroup
		start := make(chan struct{})
		for range 8 {
			all.Go(func() {
				<-start
				for range 4 {
					_, _ = gate.Enter(context.Background(), spillway.Request{})
				}
			})
		}
		close(start)
		all.Wait()
		refusals := gate.Stats().ByReason
		require.Len(t, refusals, 4)
		for _, r := range refusals {
			require.EqualValues(t, 8, r.Count)
		}
	}
}

// A refuser refuses with what it returns.
type refuser func() error

func (f refuser) Admit(context.Context, spillway.Request) (spillway.Ticket, error) { return 0, f() }
func (refuser) Done(spillway.Request, spillway.Ticket, spillway.Result)            {}
