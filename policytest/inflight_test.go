package policytest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

type tellsInt64 struct{ open }

func (tellsInt64) InFlight() int64 { return 3 }

type tellsInt struct{ open }

func (tellsInt) InFlight() int { return 3 }

type tellsStats[T any] struct{ open }

func (tellsStats[T]) Stats() (s T) { return s }

type tellsPointer struct{ open }

func (tellsPointer) Stats() *struct{ InFlight uint32 } { return &struct{ InFlight uint32 }{3} }

type tellsAt struct{ open }

func (tellsAt) Stats(int) struct{ InFlight int } { return struct{ InFlight int }{3} }

func TestInFlightIsFound(t *testing.T) {
	for _, tc := range []struct {
		p    spillway.Policy
		o    Options
		want int64
		ok   bool
	}{
		{p: tellsInt64{}, want: 3, ok: true},
		{p: tellsInt{}, want: 3, ok: true},
		{p: tellsPointer{}, want: 3, ok: true},
		{p: tellsStats[struct{ InFlight int32 }]{}, ok: true},
		{p: tellsStats[struct{ InFlight string }]{}},
		{p: tellsStats[struct{ Limit int }]{}},
		{p: tellsStats[int]{}},
		{p: tellsAt{}},
		{p: open{}},
		{p: tellsInt{}, o: Options{InFlight: func(spillway.Policy) int64 { return 7 }}, want: 7, ok: true},
	} {
		d := &driver{c: &check{suite: &suite{o: tc.o}}, p: tc.p}
		n, ok := d.inFlight()
		require.Equal(t, tc.ok, ok, "%T", tc.p)
		require.Equal(t, tc.want, n, "%T", tc.p)
	}
}

type closes struct {
	open
	closed *int
}

func (c closes) Close() { *c.closed++ }

type closesWithError struct {
	open
	closed *int
}

func (c closesWithError) Close() error {
	*c.closed++
	return context.Canceled
}

func TestPoliciesAreClosed(t *testing.T) {
	opened, closed := 0, 0
	for _, newPolicy := range []func() spillway.Policy{
		func() spillway.Policy { opened++; return &closes{closed: &closed} },
		func() spillway.Policy { opened++; return &closesWithError{closed: &closed} },
	} {
		r := record(t, newPolicy, &Options{Burst: 10})
		require.Empty(t, r.failed)
		require.Positive(t, closed)
		require.Equal(t, opened, closed)
	}
}
