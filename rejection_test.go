package spillway_test

import (
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

func TestRejectionIsAnError(t *testing.T) {
	r := &spillway.Rejection{Policy: "shedder", Reason: "limit reached"}
	require.EqualError(t, r, "spillway: shedder refused: limit reached")
	require.ErrorIs(t, r, spillway.ErrRejected)
	require.ErrorIs(t, r, r)
	require.NotErrorIs(t, r, io.EOF)
	require.NotErrorIs(t, spillway.ErrRejected, r, "ErrRejected tells of no policy")
	other := *r
	require.NotErrorIs(t, r, &other, "a Rejection is itself and ErrRejected only")

	wrapped := fmt.Errorf("call: %w", r)
	require.ErrorIs(t, wrapped, spillway.ErrRejected)
	var got *spillway.Rejection
	require.ErrorAs(t, wrapped, &got)
	require.Same(t, r, got)
	require.NotErrorAs(t, spillway.ErrRejected, &got)
	require.EqualError(t, spillway.ErrRejected, "spillway: rejected")

	require.Same(t, r, spillway.RejectionOf(r))
	require.Same(t, r, spillway.RejectionOf(wrapped))
	require.Nil(t, spillway.RejectionOf(nil))
	require.Nil(t, spillway.RejectionOf(spillway.ErrRejected))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = spillway.RejectionOf(r) }))
}

func TestOutcomeNames(t *testing.T) {
	var zero spillway.Outcome
	require.Equal(t, spillway.Ignored, zero)
	for o, want := range map[spillway.Outcome]string{
		spillway.Ignored: "ignored",
		spillway.Success: "success",
		spillway.Failure: "failure",
		spillway.Dropped: "dropped",
		spillway.Refused: "refused",
		5:                "outcome(5)",
		255:              "outcome(255)",
	} {
		require.Equal(t, want, o.String())
	}
}

func TestPriorityNames(t *testing.T) {
	for p, want := range map[spillway.Priority]string{
		spillway.Sheddable - 2: "sheddable-2",
		spillway.Sheddable:     "sheddable",
		spillway.Sheddable + 3: "sheddable+3",
		spillway.Normal:        "normal",
		spillway.Normal + 3:    "normal+3",
		spillway.Critical:      "critical",
		spillway.Critical + 2:  "critical+2",
		math.MaxInt:            fmt.Sprint("critical+", math.MaxInt-4),
		math.MinInt:            fmt.Sprint("sheddable", math.MinInt+4),
	} {
		require.Equal(t, want, p.String())
	}
	require.Less(t, spillway.Sheddable, spillway.Normal)
	require.Less(t, spillway.Normal, spillway.Critical)
}
