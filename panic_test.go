package spillway_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
)

// A faulty policy fails where it is told to.
type faulty struct {
	admit, done func()
	ended       int
}

func (f *faulty) Admit(context.Context, spillway.Request) (spillway.Ticket, error) {
	if f.admit != nil {
		f.admit()
	}
	return 0, nil
}

func (f *faulty) Done(spillway.Request, spillway.Ticket, spillway.Result) {
	f.ended++
	if f.done != nil {
		f.done()
	}
}

// A policy that fails takes nothing of the others with it.
func TestAPolicyThatPanicsLeaksNothing(t *testing.T) {
	boom := func() { panic("boom") }
	for name, bad := range map[string]*faulty{"in Admit": {admit: boom}, "in Done": {done: boom}} {
		first, second := &slots{limit: 1}, &slots{limit: 1}
		gate := spillway.New(first, bad, second)
		for range 3 {
			p := new(spillway.Permit)
			require.PanicsWithValue(t, "boom", func() {
				permit, err := gate.Enter(t.Context(), spillway.Request{})
				require.NoError(t, err)
				*p = permit
				p.Done(spillway.Success)
			}, name)
			p.Done(spillway.Success)
			require.Zero(t, first.inFlight()+second.inFlight(), name)
			require.Zero(t, gate.Stats().InFlight, name)
			require.PanicsWithValue(t, "boom", func() { _ = gate.Peek(t.Context(), spillway.Request{}) }, name)
			require.Zero(t, first.inFlight()+second.inFlight(), name)
		}
		require.Zero(t, gate.Stats().Refused)
	}
	// When a policy behind refuses, and one before fails to take it back.
	first, full := &slots{limit: 1}, &slots{}
	gate := spillway.New(first, &faulty{done: boom}, full)
	require.PanicsWithValue(t, "boom", func() { _, _ = gate.Enter(t.Context(), spillway.Request{}) })
	require.Zero(t, first.inFlight())
}

// The same if it ends the goroutine.
func TestAPolicyThatExitsLeaksNothing(t *testing.T) {
	first := &slots{limit: 1}
	bad := &faulty{admit: runtime.Goexit}
	gate := spillway.New(first, bad)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = gate.Enter(context.Background(), spillway.Request{})
	}()
	<-done
	require.Zero(t, first.inFlight())
	require.Zero(t, bad.ended, "it owes nothing: it admitted nothing")
}

func TestTypedNilIsRefused(t *testing.T) {
	var none *slots
	require.PanicsWithValue(t, "spillway: New: policy 1 is nil", func() { spillway.New(new(slots), none) })
}
