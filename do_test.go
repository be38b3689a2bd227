package spillway_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
)

func TestDoClassesOutcomes(t *testing.T) {
	errOther := errors.New("broken")
	cancelled, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, tc := range []struct {
		name   string
		ctx    context.Context
		err    error
		leave  bool // the caller cancels while fn runs
		expect spillway.Outcome
	}{
		{name: "nil", expect: spillway.Success},
		{name: "nil although the caller left", leave: true, expect: spillway.Success},
		{name: "any error", err: errOther, expect: spillway.Failure},
		{name: "any error after the caller left", err: errOther, leave: true, expect: spillway.Ignored},
		{name: "a refusal further on", err: errFull, expect: spillway.Ignored},
		{name: "a wrapped refusal further on", err: fmt.Errorf("call: %w", errFull), expect: spillway.Ignored},
		{name: "a deadline", err: context.DeadlineExceeded, expect: spillway.Dropped},
		{name: "a wrapped deadline", err: fmt.Errorf("call: %w", context.DeadlineExceeded), expect: spillway.Dropped},
		{name: "a deadline after the caller left", err: context.DeadlineExceeded, leave: true, expect: spillway.Ignored},
		{name: "a cancellation of its own", err: context.Canceled, expect: spillway.Failure},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ps, policies, _ := probes(1)
			gate := spillway.New(policies...)
			ctx := context.Background()
			if tc.leave {
				ctx = &leavable{Context: ctx, after: cancelled}
			}
			err := spillway.Do(ctx, gate, spillway.Request{Key: "r"}, func(got context.Context) error {
				require.Equal(t, ctx, got)
				if l, ok := got.(*leavable); ok {
					cancel()
					l.left = true
				}
				return tc.err
			})
			require.Equal(t, tc.err, err)
			require.Len(t, ps[0].results, 1)
			require.Equal(t, tc.expect, ps[0].results[0].Outcome)
			require.Equal(t, "r", ps[0].ends[0].Key)
			require.Zero(t, gate.Stats().InFlight)
		})
	}
}

// A leavable is a Context whose caller may leave.
type leavable struct {
	context.Context
	after context.Context
	left  bool
}

func (l *leavable) Err() error {
	if l.left {
		return l.after.Err()
	}
	return nil
}

func TestDoRefused(t *testing.T) {
	gate := spillway.New(&slots{})
	err := spillway.Do(context.Background(), gate, spillway.Request{}, func(context.Context) error {
		t.Error("fn ran although its request was refused")
		return nil
	})
	require.Same(t, errFull, err)
}

func TestDoWithEndedCtx(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := spillway.Do(ctx, spillway.New(), spillway.Request{}, func(context.Context) error {
		t.Error("fn ran although its ctx had ended")
		return nil
	})
	require.Equal(t, context.Canceled, err)
}

func TestDoPassesPanicsThrough(t *testing.T) {
	ps, policies, _ := probes(1)
	gate := spillway.New(policies...)
	errPanic := errors.New("panicked with")
	require.PanicsWithValue(t, errPanic, func() {
		_ = spillway.Do(context.Background(), gate, spillway.Request{}, func(context.Context) error { panic(errPanic) })
	})
	var all sync.WaitGroup
	all.Go(func() {
		_ = spillway.Do(context.Background(), gate, spillway.Request{}, func(context.Context) error {
			runtime.Goexit()
			return nil
		})
	})
	all.Wait()
	require.Len(t, ps[0].results, 2)
	for _, r := range ps[0].results {
		require.Equal(t, spillway.Failure, r.Outcome)
	}
}

func TestDoAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("allocations are not counted under the race detector: it adds its own")
	}
	gate := spillway.New(&slots{limit: 1}, &slots{limit: 1})
	n := 0
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		_ = spillway.Do(context.Background(), gate, spillway.Request{}, func(context.Context) error { n++; return nil })
	}))
	require.Equal(t, 1001, n)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		_ = spillway.Do(ctx, gate, spillway.Request{Key: "k"}, func(context.Context) error { n++; return nil })
	}))
}

func TestMust(t *testing.T) {
	require.Equal(t, 3, spillway.Must(3, nil))
	err := errors.New("Window: got 0")
	require.PanicsWithValue(t, err, func() { spillway.Must(time.Second, err) })
}
