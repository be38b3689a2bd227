package spillway_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
)

func TestPeekAsksInOrderAndGivesBackInReverse(t *testing.T) {
	ps, policies, j := probes(3)
	gate := spillway.New(policies...)
	require.NoError(t, gate.Peek(context.Background(), spillway.Request{Key: "r", Arrived: base}))
	require.Equal(t, []string{
		"0 admits r", "1 admits r", "2 admits r",
		"2 ends r as 201: refused after 0s", "1 ends r as 101: refused after 0s", "0 ends r as 1: refused after 0s",
	}, j.take())
	require.Zero(t, gate.Stats().Admitted)

	ps[2].refuse = errFull
	require.Equal(t, error(errFull), gate.Peek(context.Background(), spillway.Request{Key: "r", Arrived: base}))
	require.Equal(t, []string{
		"0 admits r", "1 admits r", "2 refuses r",
		"1 ends r as 102: refused after 0s", "0 ends r as 2: refused after 0s",
	}, j.take())
	require.Equal(t, spillway.GateStats{
		Refused: 1, ByReason: []spillway.Refusal{{Index: 2, Policy: "slots", Reason: "full", Count: 1}},
	}, gate.Stats())
}

func TestPeekReadsTheClockIfNeedBe(t *testing.T) {
	ps, policies, _ := probes(1)
	gate := spillway.New(policies...)
	before := time.Now()
	require.NoError(t, gate.Peek(context.Background(), spillway.Request{}))
	require.NoError(t, gate.Peek(context.Background(), spillway.Request{Arrived: base}))
	require.WithinDuration(t, before, ps[0].admits[0].Arrived, time.Minute)
	require.Equal(t, base, ps[0].admits[1].Arrived)
	require.Equal(t, ps[0].admits, ps[0].ends)
}

func TestPeekHoldsNothing(t *testing.T) {
	s := &slots{limit: 1}
	gate := spillway.New(s)
	for range 3 {
		require.NoError(t, gate.Peek(context.Background(), spillway.Request{}))
	}
	permit, err := gate.Enter(context.Background(), spillway.Request{})
	require.NoError(t, err)
	require.ErrorIs(t, gate.Peek(context.Background(), spillway.Request{}), spillway.ErrRejected)
	permit.Done(spillway.Success)
	require.NoError(t, gate.Peek(context.Background(), spillway.Request{}))
	require.Zero(t, s.inFlight())
}

func TestPeekDoesNotQueue(t *testing.T) {
	ps, policies, j := probes(3)
	gate := spillway.New(policies[0], &waiting{ps[1], time.Hour}, policies[2])
	ps[2].refuse = errFull
	require.NoError(t, gate.Peek(context.Background(), spillway.Request{Key: "r", Arrived: base}))
	require.Equal(t, []string{"0 admits r", "0 ends r as 1: refused after 0s"}, j.take())
}

func TestPeekOfAnEndedContext(t *testing.T) {
	_, policies, j := probes(1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, spillway.New(policies...).Peek(ctx, spillway.Request{}), context.Canceled)
	require.Empty(t, j.take())
}

func TestPeekDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	open := spillway.New(&slots{limit: 1}, &slots{limit: 1})
	shut := spillway.New(&slots{limit: 1}, &slots{})
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		_ = open.Peek(context.Background(), spillway.Request{})
		_ = shut.Peek(context.Background(), spillway.Request{})
	}))
}
