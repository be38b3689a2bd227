package shedder_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/shedder"
)

// Tune may switch FairRoutes on and off while requests are in flight.
func TestTuneFairRoutes(t *testing.T) {
	shed := spillway.Must(shedder.New(&shedder.Options{CPU: &fakeCPU{}, Sched: &schedStub{}}))
	now := time.Now()
	tune := func(on bool) {
		o := shed.Options()
		o.FairRoutes = on
		require.NoError(t, shed.Tune(o))
		require.Equal(t, on, shed.Options().FairRoutes)
	}
	second := func(switches bool) {
		for range 100 {
			now = now.Add(10 * time.Millisecond)
			r := spillway.Request{Route: "a", Arrived: now}
			ticket, err := shed.Admit(context.Background(), r)
			require.NoError(t, err)
			if switches { // while a request is in flight
				tune(!shed.Options().FairRoutes)
				tune(!shed.Options().FairRoutes)
			}
			shed.Done(r, ticket, spillway.Result{Outcome: spillway.Success, Latency: 5 * time.Millisecond})
		}
	}
	second(true)
	require.Zero(t, shed.Cost("a"))
	require.Zero(t, shed.Stats().Routes)
	tune(true)
	for range 5 {
		second(false)
	}
	require.InEpsilon(t, 5*time.Millisecond, shed.Cost("a"), 0.01)
	require.Zero(t, shed.Cost("b"))
	s := shed.Stats()
	require.Equal(t, 1, s.Routes)
	require.Equal(t, math.Inf(1), s.RouteShare)
	require.Zero(t, s.InFlight)
	tune(false)
	second(false)
	require.Zero(t, shed.Cost("a"), "what was learnt is forgotten")
	require.Zero(t, shed.Stats().Routes)
}

func TestFairRoutesAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	o := &shedder.Options{CPU: &fakeCPU{usage: 1}, Sched: &schedStub{}, MinLimit: 4, MaxLimit: 4, FairRoutes: true}
	shed := spillway.Must(shedder.New(o))
	now, refused := time.Now(), 0
	var held [4]spillway.Request
	for i := range held {
		held[i] = spillway.Request{Route: "a", Key: "x", Arrived: now}
		_, err := shed.Admit(context.Background(), held[i])
		require.NoError(t, err)
	}
	pass := func() {
		now = now.Add(time.Millisecond)
		shed.Done(held[0], 0, spillway.Result{Outcome: spillway.Success, Latency: time.Millisecond})
		for _, route := range []string{"a", "b"} {
			held[0] = spillway.Request{Route: route, Key: "x", Arrived: now}
			if _, err := shed.Admit(context.Background(), held[0]); err != nil {
				refused++
			}
		}
	}
	pass()
	require.Zero(t, testing.AllocsPerRun(1000, pass))
	require.Positive(t, refused)
}
