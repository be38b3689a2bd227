package shedder

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/stats"
)

func TestFairPart(t *testing.T) {
	for _, c := range []struct {
		needs    []float64
		capacity float64
		want     float64
	}{
		{[]float64{10}, 4, 4},
		{[]float64{10, 10}, 4, 2},
		{[]float64{1, 10}, 4, 3},
		{[]float64{10, 0, 1, 2}, 8, 5},
		{[]float64{3, 1, 100, 2}, 7, 2},
	} {
		var all []*route
		for _, need := range c.needs {
			all = append(all, &route{need: need})
		}
		require.InDelta(t, c.want, fairPart(all, c.capacity), 1e-9, "%v", c)
	}
}

// fixedCPU is a full CPU, as a CPUSampler.
type fixedCPU struct{}

func (fixedCPU) Sample(now time.Time) stats.CPUSample {
	return stats.CPUSample{Usage: 1, Smoothed: 1, Time: now, Samples: 1, Limit: 1}
}

type noSched struct{}

func (noSched) Sample(now time.Time) stats.SchedSample { return stats.SchedSample{Time: now} }

func fair(t testing.TB) *Shedder {
	t.Helper()
	s, err := New(&Options{FairRoutes: true, CPU: fixedCPU{}, Sched: noSched{}, MinLimit: 8, MaxLimit: 8})
	require.NoError(t, err)
	return s
}

// answer admits and ends a request. It reports whether it was admitted.
func answer(s *Shedder, name string, at time.Time, latency time.Duration) bool {
	r := spillway.Request{Route: name, Arrived: at}
	ticket, err := s.Admit(context.Background(), r)
	if err != nil {
		return false
	}
	s.Done(r, ticket, spillway.Result{Outcome: spillway.Success, Latency: latency})
	return true
}

// Routes that clients invent take no memory, and no part beside that of all unknown routes.
func TestRoutesAreBounded(t *testing.T) {
	s, now := fair(t), time.Now()
	for i := range 1000 {
		answer(s, fmt.Sprint("route", i), now, time.Millisecond)
	}
	answer(s, strings.Repeat("x", longestRoute+1), now, time.Millisecond)
	answer(s, "", now, time.Millisecond)
	f := s.routes.Load()
	require.Len(t, *f.known.Load(), mostRoutes)
	require.Same(t, &f.rest, f.of("route999"))
	require.Same(t, &f.rest, f.of(""))
}

// A route is known by its successes only, so that refused and failed requests make none.
func TestOnlySuccessesMakeRoutes(t *testing.T) {
	s, now := fair(t), time.Now()
	for _, o := range []spillway.Outcome{spillway.Failure, spillway.Ignored, spillway.Dropped, spillway.Refused} {
		r := spillway.Request{Route: o.String(), Arrived: now}
		ticket, err := s.Admit(context.Background(), r)
		require.NoError(t, err)
		s.Done(r, ticket, spillway.Result{Outcome: o})
	}
	require.Empty(t, *s.routes.Load().known.Load())
}

func TestFairRoutesCanBeTuned(t *testing.T) {
	s, now := fair(t), time.Now()
	r := spillway.Request{Route: "a", Arrived: now}
	ticket, err := s.Admit(context.Background(), r)
	require.NoError(t, err)
	o := s.Options()
	o.FairRoutes = false
	require.NoError(t, s.Tune(o))
	s.Done(r, ticket, spillway.Result{Outcome: spillway.Success})
	require.Zero(t, s.Stats().InFlight)
	require.Nil(t, s.routes.Load())
	o.FairRoutes = true
	require.NoError(t, s.Tune(o))
	require.True(t, answer(s, "a", now, 0))
	require.NotNil(t, s.routes.Load())
}

// The clock of the caller may stand, leap or go back.
func TestRoutesSurviveTheClock(t *testing.T) {
	s, now := fair(t), time.Now()
	for i, step := range []time.Duration{0, time.Hour, -2 * time.Hour, 365 * 24 * time.Hour, 0, -time.Hour} {
		now = now.Add(step)
		for j := range 100 {
			answer(s, fmt.Sprint(i, j%3), now.Add(time.Duration(j)*time.Millisecond), time.Duration(j)*time.Millisecond)
		}
	}
	for _, r := range s.routes.Load().all {
		require.False(t, r.cost < 0 || r.cost != r.cost || r.need != r.need, "%+v", r.cost)
	}
	require.Zero(t, s.Stats().InFlight)
}

func TestFairRoutesAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector allocates")
	}
	s, now := fair(t), time.Now()
	s.routes.Load().mark.Store(inForce)
	for range 10 {
		answer(s, "a", now, time.Millisecond)
	}
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now = now.Add(10 * time.Microsecond)
		answer(s, "a", now, time.Millisecond)
		answer(s, "unknown", now, -1)
	}))
}

func TestFairRoutesConcurrently(t *testing.T) {
	s, start := fair(t), time.Now()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 3000 {
				now := start.Add(time.Duration(i) * time.Millisecond)
				answer(s, fmt.Sprint((i+g)%300), now, time.Duration(i%50)*time.Millisecond)
			}
		})
	}
	wg.Wait()
	require.Zero(t, s.Stats().InFlight)
	require.LessOrEqual(t, len(*s.routes.Load().known.Load()), mostRoutes)
}
