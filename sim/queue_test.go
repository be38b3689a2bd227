package sim_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/sim"
)

// behindQueue returns a gate of a Shedder in front of which requests may wait.
func behindQueue(h *sim.Host) (*spillway.Gate, error) {
	shed, err := shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched(), MaxQueue: 1000})
	return spillway.New(shed), err
}

// playQueue plays s behind a Shedder with and without a queue.
func playQueue(t *testing.T, s sim.Scenario, seed uint64) (with, without *sim.Result) {
	t.Helper()
	without = play(t, s, seed, behindShedder)
	s.Settle = synctest.Wait
	synctest.Test(t, func(t *testing.T) { with = play(t, s, seed, behindQueue) })
	return with, without
}

// burstsOf is a minute with bursts of 0.3 s every 1.5 s. Callers are patient.
func burstsOf(base string, usual, burst float64) sim.Scenario {
	s := sim.Named(base, 1)
	s.Client.Deadline, s.Client.Useful = 5*time.Second, 5*time.Second
	s.Phases = []sim.Phase{{For: 15 * time.Second, Load: usual}}
	for range 40 {
		s.Phases = append(s.Phases, sim.Phase{For: 1200 * time.Millisecond, Load: usual, Measured: true},
			sim.Phase{For: 300 * time.Millisecond, Load: burst, Measured: true})
	}
	s.Phases = append(s.Phases, sim.Phase{For: 1200 * time.Millisecond, Load: usual, Measured: true})
	return s
}

func lost(r *sim.Result) float64 { return r.Shed + r.TimedOut }

// Bursts at three times the usual load pass through a queue, as long as the service works them off in time.
func TestBurstsWait(t *testing.T) {
	const most, runs = 0.001, 10
	for _, c := range []struct {
		base          string
		usual         float64
		with, without float64 // greatest share lost with a queue, least without
	}{{"step", 0.4, most, 0.005}, {"pool", 0.45, most, 0.001}, {"pool", 0.5, 2 * most, 0.02}} {
		t.Run(fmt.Sprint(c.base, c.usual), func(t *testing.T) {
			var with, without float64
			for seed := range uint64(runs) {
				w, wo := playQueue(t, burstsOf(c.base, c.usual, 3*c.usual), seed+1)
				t.Logf("usual load %v: lost %.2f %%, %.2f %% without; p99 %v, %v without", c.usual, 100*lost(w), 100*lost(wo), w.P99, wo.P99)
				require.LessOrEqual(t, w.P99, 300*time.Millisecond)
				with, without = with+lost(w)/runs, without+lost(wo)/runs
			}
			require.LessOrEqual(t, with, c.with)
			require.GreaterOrEqual(t, without, c.without)
		})
	}
}

// Bursts at three times the capacity bring 0.9 s of work in 0.3 s. No order can serve them all within 0.3 s, but a longer
// queue serves them.
func TestLongerQueueForGreaterBursts(t *testing.T) {
	s := burstsOf("pool", 0.2, 3)
	without := play(t, s, 1, behindShedder)
	s.Settle = synctest.Wait
	synctest.Test(t, func(t *testing.T) {
		with := play(t, s, 1, func(h *sim.Host) (*spillway.Gate, error) {
			shed, err := shedder.New(&shedder.Options{CPU: h.CPU(), Sched: h.Sched(), MaxQueue: 1000, MaxWait: time.Second})
			return spillway.New(shed), err
		})
		t.Logf("lost %.2f %%, %.2f %% without; p99 %v, %v without", 100*lost(with), 100*lost(without), with.P99, without.P99)
		require.LessOrEqual(t, lost(with), 0.001)
		require.GreaterOrEqual(t, lost(without), 0.02)
		require.LessOrEqual(t, with.P99, time.Second)
	})
}

// A queue does no harm in a long overload: from the sixth second on, requests wait for a few milliseconds.
func TestQueueInALongOverload(t *testing.T) {
	for _, base := range []string{"step", "pool"} {
		s := sim.Named(base, 3)
		s.Phases = []sim.Phase{{For: 15 * time.Second, Load: 0.7}, {For: 5 * time.Second, Load: 3}, {For: time.Minute, Load: 3, Measured: true}}
		with, without := playQueue(t, s, 1)
		t.Logf("goodput %.3f, %.3f without; p99 %v, %v without", with.Goodput, without.Goodput, with.P99, without.P99)
		require.GreaterOrEqual(t, with.Goodput, without.Goodput-0.005)
		require.LessOrEqual(t, with.P99, without.P99+20*time.Millisecond)
	}
}

// While there is room, a queue changes next to nothing.
func TestQueueWhileThereIsRoom(t *testing.T) {
	for _, base := range []string{"step", "pool"} {
		with, without := playQueue(t, sim.Named(base, 0.7), 1)
		require.LessOrEqual(t, with.Shed, without.Shed)
		require.InDelta(t, without.Goodput, with.Goodput, 0.005) // the order of a few requests differs
		require.InDelta(t, without.P99, with.P99, float64(30*time.Millisecond))
	}
}

// In bursts of one tenant, the others wait for less time than it does.
func TestTenantsTakeTurns(t *testing.T) {
	s := burstsOf("pool", 0.5, 1.5)
	class := s.Classes[0]
	s.Classes = []sim.Class{class, class}
	s.Classes[0].Name, s.Classes[0].Key, s.Classes[0].Share = "heavy", "heavy", 0.8
	s.Classes[1].Name, s.Classes[1].Key, s.Classes[1].Share, s.Classes[1].Keys = "light", "light-", 0.2, 20
	with, without := playQueue(t, s, 1)
	for i := range with.Classes {
		t.Logf("%s: served %.4f, %.4f without; p99 %v, %v without", with.Classes[i].Name, with.Classes[i].Served, without.Classes[i].Served,
			with.Classes[i].P99, without.Classes[i].P99)
	}
	heavy, light := with.Classes[0], with.Classes[1]
	require.Less(t, light.P99, heavy.P99*4/5)
	require.GreaterOrEqual(t, light.Served, 0.998)
	require.LessOrEqual(t, lost(with), 0.001)
}

// A run with a queue is the same to the bit from the same seed.
func TestQueuedRunsRepeat(t *testing.T) {
	s := burstsOf("pool", 0.5, 3)
	s.Phases, s.Settle = s.Phases[:9], synctest.Wait
	var results []*sim.Result
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			r, err := sim.Run(s, 1, behindQueue)
			require.NoError(t, err)
			results = append(results, r)
		})
	}
	require.Positive(t, results[0].Shed)
	require.Equal(t, results[0], results[1])
}
