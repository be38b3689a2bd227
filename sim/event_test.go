package sim_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/sim"
)

// between returns the mean latency, in ms, and the number of the requests that arrived between two seconds.
func between(t *testing.T, s sim.Scenario, from, to float64) (mean float64, n int) {
	t.Helper()
	spy := &arrivals{from: from, to: to}
	_, err := sim.Run(s, 1, func(*sim.Host) (*spillway.Gate, error) { return spillway.New(spy), nil })
	require.NoError(t, err)
	return spy.sum / float64(spy.n), spy.n
}

// arrivals adds up the latencies of requests by the time at which they arrived.
type arrivals struct {
	from, to, sum float64
	n             int
}

func (*arrivals) Admit(context.Context, spillway.Request) (spillway.Ticket, error) { return 0, nil }

func (a *arrivals) Done(r spillway.Request, _ spillway.Ticket, result spillway.Result) {
	if second := float64(r.Arrived.UnixNano())/1e9 - 1e9; second >= a.from && second < a.to {
		a.sum += result.Latency.Seconds() * 1e3
		a.n++
	}
}

func TestStretchMultipliesTheWaits(t *testing.T) {
	s := waiting(sim.Dist{Fixed: 20 * time.Millisecond})
	s.Events = []sim.Event{
		{At: 2 * time.Second, Stage: "call", Stretch: 10}, {At: 3 * time.Second, Stage: "other", Stretch: 7},
		{At: 4 * time.Second, Stretch: 2}, {At: 6 * time.Second, Stage: "call", Stretch: 1}, {At: 6 * time.Second, Stretch: 1},
		{At: 6 * time.Second, Slower: 5 * time.Millisecond},
	}
	for i, want := range []float64{20, 200, 400, 25} {
		from := float64(2 * i)
		mean, _ := between(t, s, from, from+1.9)
		require.InDelta(t, want, mean, 0.1, "from second %v", from)
	}
}

func TestStallHoldsUpWaits(t *testing.T) {
	s := waiting(sim.Dist{Fixed: 100 * time.Millisecond})
	s.Events = []sim.Event{{At: 2 * time.Second, Stage: "call", Stall: 3 * time.Second}}
	for _, at := range []struct{ from, to, want float64 }{
		{1, 1.89, 100}, {1.91, 1.99, 3100}, {2, 2.01, 3095}, {4.9, 4.91, 195}, {5, 6, 100},
	} {
		mean, n := between(t, s, at.from, at.to)
		require.Positive(t, n)
		require.InDelta(t, at.want, mean, 6, "from second %v", at.from)
	}
	s.Events[0].Stage = "other"
	mean, _ := between(t, s, 2, 5)
	require.InDelta(t, 100, mean, 0.1, "another stage goes on")
	s.Events[0].Stage = ""
	mean, _ = between(t, s, 2, 2.01)
	require.InDelta(t, 3095, mean, 6, "no name is all of them")
}

// A pool of 8 that becomes one of 4 answers half as much, after it one of 16 twice as much.
func TestSlotsResizeAPool(t *testing.T) {
	s := sim.Named("pool", 3)
	s.Phases = []sim.Phase{{For: 9 * time.Second, Load: 3}}
	s.Client.Deadline, s.Client.Useful = time.Minute, time.Minute
	s.Events = []sim.Event{{At: 3 * time.Second, Pool: "db", Slots: 4}, {At: 6 * time.Second, Pool: "db", Slots: 16}}
	r, err := sim.Run(s, 1, bare)
	require.NoError(t, err)
	for second, want := range []float64{1: 8, 4: 4, 7: 16} {
		if want > 0 {
			require.InDelta(t, want/0.025, served(r, float64(second), float64(second)+1.9), 8)
		}
	}
}

func TestCoresComeAndGo(t *testing.T) {
	s := sim.Named("step", 3)
	s.Machine.Cores = 4
	s.Phases = []sim.Phase{{For: 9 * time.Second, Load: 3}}
	s.Classes[0].Stages[0].CPU = sim.Dist{Fixed: 10 * time.Millisecond}
	s.Events = []sim.Event{{At: 3 * time.Second, Cores: 1}, {At: 6 * time.Second, Cores: 8}}
	var cores []int
	usage := map[int]float64{}
	_, err := sim.Run(s, 1, func(h *sim.Host) (*spillway.Gate, error) {
		cpu := h.CPU()
		h.Every(time.Second, func(second float64) {
			cores = append(cores, h.Cores())
			usage[int(second)] = cpu.Sample(time.Unix(1e9, 0).Add(time.Duration(second * 1e9))).Usage
		})
		return spillway.New(&atMost{limit: 100}), nil
	})
	require.NoError(t, err)
	require.Equal(t, []int{4, 4, 1, 1, 1, 8, 8, 8, 8}, cores[:9])
	for _, second := range []int{2, 5, 8} {
		require.InDelta(t, 1, usage[second], 0.05, "all of them are busy, and the sensor knows how many there are")
	}
}

func TestEventsThatCannotBe(t *testing.T) {
	for want, ev := range map[string]sim.Event{
		"event 0: Stretch, Stall, Cores and Slots must not be negative, got -1, 0s, 0, 0": {Stretch: -1},
		"event 0: Stretch, Stall, Cores and Slots must not be negative, got 0, -1s, 0, 0": {Stall: -time.Second},
		"event 0: Stretch, Stall, Cores and Slots must not be negative, got 0, 0s, -2, 0": {Cores: -2},
		`event 0: there is no pool "x"`: {Pool: "x", Slots: 2},
	} {
		s := sim.Named("step", 2)
		s.Events = []sim.Event{ev}
		_, err := sim.Run(s, 1, bare)
		require.ErrorContains(t, err, want)
	}
}

// Requests that take a second are answered after the end, too, and count there.
func TestInTimeCountsAnswersAfterTheEnd(t *testing.T) {
	s := waiting(sim.Dist{Fixed: time.Second})
	r, err := sim.Run(s, 1, bare)
	require.NoError(t, err)
	require.InDelta(t, 0.9, r.Goodput, 0.02, "of ten seconds, the answers of the last are missing")
	require.InDelta(t, 1, r.InTime, 1e-9)
	require.Zero(t, r.RefusedInAll)
	s.Client.Useful = 900 * time.Millisecond
	r, err = sim.Run(s, 1, func(*sim.Host) (*spillway.Gate, error) { return spillway.New(&atMost{limit: 250}), nil })
	require.NoError(t, err)
	require.Zero(t, r.InTime)
	require.InDelta(t, 0.75, r.RefusedInAll, 0.03)
}

// What a simulated process does depends on the simulated machine alone, not on the number of processors of the one that simulates.
func TestASimulatedQuotaIsThatOfTheSimulatedMachine(t *testing.T) {
	play := func(procs int) sim.Result {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		s := sim.Named("step-quota", 3)
		s.Machine.Cores, s.Machine.Quota = 2, 1
		result, err := sim.Run(s, 1, behindShedder)
		require.NoError(t, err)
		return *result
	}
	require.Equal(t, play(1), play(8))
}
