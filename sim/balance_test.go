package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/sim"
)

func TestBalancers(t *testing.T) {
	s := sim.Named("steady", 0.7)
	s.Phases[0].For = 30 * time.Second
	s.Machine.Hosts = 4
	p99 := map[sim.Balance]time.Duration{}
	for _, b := range []sim.Balance{sim.Random, sim.RoundRobin, sim.LeastLoaded} {
		s.Machine.Balance = b
		r := play(t, s, 1, bare)
		require.InDelta(t, 0.7, r.Goodput, 0.04)
		require.Len(t, r.Hosts, 4)
		for _, h := range r.Hosts {
			require.InDelta(t, 0.25, h.Share, 0.02)
			require.Greater(t, h.Served, 0.99)
		}
		p99[b] = r.P99
	}
	require.Less(t, p99[sim.RoundRobin], p99[sim.Random], "even arrivals wait less")
	require.Less(t, p99[sim.LeastLoaded], p99[sim.RoundRobin], "and the shortest queue is shorter than the next")
}

// One of four hosts is four times slower, at 0.7 of what all could do: the others can carry its part to 0.93. A balancer that
// does not look drowns it, and a quarter of the requests with it; its shedder saves what it can still do.
func TestOneSlowHost(t *testing.T) {
	s := within(slowHost(sim.RoundRobin), 3)
	drowned := play(t, s, 1, bare)
	require.InDelta(t, 0.75*0.7, drowned.Goodput, 0.03, "the requests of the slow host are lost")
	saved := play(t, s, 1, behindShedder)
	require.Greater(t, saved.Goodput, drowned.Goodput+0.02)
	require.Greater(t, saved.Hosts[0].Refused, 0.1)
	for _, h := range saved.Hosts[1:] {
		require.Less(t, h.Refused, 0.001, "the others refuse nothing")
		require.InDelta(t, 0.25, h.Share, 0.001)
	}

	led := play(t, within(slowHost(sim.LeastLoaded), 3), 1, bare)
	require.Greater(t, led.Goodput, 0.68, "nothing is lost where the balancer sees who owes it answers")
	require.Less(t, led.Hosts[0].Share, 0.22)
}

// A host that refuses at once owes nothing, so a balancer by load might prefer it and send it all there is to refuse. The
// shedder of a host that is spared has no reason to refuse.
func TestLeastLoadedIsNotDrawnToTheHostThatRefuses(t *testing.T) {
	led := play(t, within(slowHost(sim.LeastLoaded), 3), 1, behindShedder)
	require.Greater(t, led.Goodput, 0.67)
	require.Less(t, led.Hosts[0].Share, 0.25)
	require.LessOrEqual(t, led.Hosts[0].Refused, 0.1)
}

func slowHost(b sim.Balance) sim.Scenario {
	s := sim.Named("slow-host", 0)
	s.Machine.Balance = b
	return s
}
