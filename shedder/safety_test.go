package shedder_test

import (
	"context"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
)

// flood asks every step for d, ends at once what is admitted beyond the first, and returns the share of refusals.
func (r *rig) flood(d, step time.Duration) float64 {
	refused, all := 0, 0
	for end := r.now.Add(d); r.now.Before(end); r.sleep(step) {
		all++
		ticket, err := r.enter()
		if err != nil {
			refused++
			continue
		}
		r.shed.Done(spillway.Request{Arrived: r.now}, ticket, spillway.Result{Outcome: spillway.Ignored})
	}
	return float64(refused) / float64(all)
}

// stuck returns a rig that is overloaded and full, with one place that nobody leaves.
func stuck(t *testing.T, o shedder.Options) *rig {
	o.MaxLimit = 1
	r := newRig(t, o)
	r.look()
	_, err := r.enter()
	require.NoError(t, err)
	return r
}

func TestMaxShedBoundsTheShareOfRefusals(t *testing.T) {
	for _, most := range []float64{0.05, 0.3, 0.5, 0.9, 0.99} {
		r := stuck(t, shedder.Options{MaxShed: most})
		for range 5 {
			share := r.flood(time.Second, 97*time.Microsecond)
			require.InDelta(t, most, share, 0.05, "of each second, not only in the long run")
		}
		s := r.shed.Stats()
		require.InDelta(t, 1-most, s.Leak, 0.1)
		require.Positive(t, s.Leaked)
		require.Equal(t, int64(1), s.InFlight)
	}
}

func TestWithoutMaxShedNothingLeaks(t *testing.T) {
	r := stuck(t, shedder.Options{})
	require.InDelta(t, 1, r.flood(900*time.Millisecond, time.Millisecond), 0)
	require.Zero(t, r.shed.Stats().Leaked)
}

func TestMaxShedLeavesFewerRefusalsAlone(t *testing.T) {
	r := stuck(t, shedder.Options{MaxShed: 0.6})
	r.leave(1, time.Millisecond, spillway.Ignored)
	refused := 0
	for range 500 { // every other request finds the place taken
		ticket, err := r.enter()
		require.NoError(t, err)
		_, err = r.enter()
		if err != nil {
			refused++
		}
		r.shed.Done(spillway.Request{Arrived: r.now}, ticket, spillway.Result{Outcome: spillway.Ignored})
		r.sleep(10 * time.Millisecond)
	}
	require.Equal(t, 500, refused)
	require.Zero(t, r.shed.Stats().Leaked)
}

func TestMaxShedMakesGoodWhatABurstWasRefused(t *testing.T) {
	r := stuck(t, shedder.Options{MaxShed: 0.5})
	require.Zero(t, r.enterMany(500), "between two ticks nobody counts")
	r.sleep(20 * time.Millisecond)
	require.Less(t, r.flood(time.Second, time.Millisecond), 0.4, "and fewer than half for a while")
	r.flood(2*time.Second, time.Millisecond)
	require.InDelta(t, 0.5, r.flood(time.Second, time.Millisecond), 0.05)
}

func TestMaxShedBoundsWhatIsDropped(t *testing.T) {
	s := newService(t, shedder.Options{MaxShed: 0.2}, 10*time.Millisecond)
	s.run(3*second, 200)
	s.sched.wait = time.Second
	s.flood(4*second, 100*time.Microsecond)
	require.Greater(t, s.shed.Stats().Drop, 0.5)
	require.InDelta(t, 0.2, s.flood(time.Second, 100*time.Microsecond), 0.05)
}

func TestMaxShedOutOfRange(t *testing.T) {
	for _, most := range []float64{-0.1, 1.1} {
		_, err := shedder.New(&shedder.Options{MaxShed: most})
		require.ErrorContains(t, err, "shedder: MaxShed must be in (0, 1], or 0 for no bound, got ")
	}
}

func TestAStuckServiceIsProbedOnceASecond(t *testing.T) {
	r := newRig(t, shedder.Options{MaxLimit: 4})
	r.look()
	require.Equal(t, 4, r.enterMany(100))
	var at []time.Duration
	start := r.now
	for range 275 { // 5.5 s
		r.sleep(20 * time.Millisecond)
		if r.enterMany(10) > 0 {
			at = append(at, r.now.Sub(start).Round(100*time.Millisecond))
		}
	}
	require.Equal(t, []time.Duration{second, 2 * second, 3 * second, 4 * second, 5 * second}, at)
	require.Equal(t, int64(9), r.shed.Stats().InFlight, "one each time")
	require.Equal(t, int64(5), r.shed.Stats().Probes)

	r.leave(1, 5*second, spillway.Success) // something ends: no need to probe
	r.sleep(20 * time.Millisecond)
	require.Zero(t, r.enterMany(10), "the limit is what it was")
	r.leave(8, 5*second, spillway.Success)
	r.sleep(20 * time.Millisecond)
	require.Equal(t, 4, r.enterMany(10))
	require.Equal(t, int64(5), r.shed.Stats().Probes)
}

func TestLowPrioritiesProbeToo(t *testing.T) {
	r := newRig(t, shedder.Options{MaxLimit: 4})
	r.look()
	admitted := 0
	for range 60 {
		if _, err := r.enterAs(spillway.Sheddable); err == nil {
			admitted++
		}
		r.sleep(20 * time.Millisecond)
	}
	require.Equal(t, 4+1, admitted, "the limit, and one after a second")
}

func TestLongRequestsAreNotTakenForStuckOnes(t *testing.T) {
	r := newService(t, shedder.Options{}, 3*second)
	r.run(20*second, 20)
	for r.shed.Stats().InFlight > 0 {
		r.sleep(time.Millisecond)
		r.end()
	}
	require.InDelta(t, 3, r.shed.Stats().MinRT.Seconds(), 0.3)
	o := r.shed.Options()
	o.MaxLimit = 4
	require.NoError(t, r.shed.Tune(o))
	r.pass(100 * time.Millisecond)
	require.Equal(t, 4, r.enterMany(10))
	for range 290 { // 5.8 s
		r.sleep(20 * time.Millisecond)
		require.Zero(t, r.enterMany(1))
	}
}

// stale says for ever what it said first.
type stale struct {
	cpu   stats.CPUSample
	sched stats.SchedSample
}

type (
	staleCPU   struct{ *stale }
	staleSched struct{ *stale }
)

func (s staleCPU) Sample(time.Time) stats.CPUSample     { return s.cpu }
func (s staleSched) Sample(time.Time) stats.SchedSample { return s.sched }

func TestStaleSamplesAreNotBelieved(t *testing.T) {
	r := rig{t: t, now: time.Unix(1e9, 0)}
	old := &stale{
		stats.CPUSample{Usage: 1, Smoothed: 1, Time: r.now, Samples: 1, Limit: 1, Source: "stub"},
		stats.SchedSample{Value: time.Second, Time: r.now, Samples: 1},
	}
	r.shed = spillway.Must(shedder.New(&shedder.Options{CPU: staleCPU{old}, Sched: staleSched{old}, CPUOnly: true}))
	s := r.pass(3 * time.Second)
	require.Equal(t, shedder.CPUHigh, s.Reason, "3 s old is still believed")
	require.NoError(t, s.CPUErr)
	require.NoError(t, s.SchedErr)
	require.Equal(t, time.Second, s.QueueDelay)
	s = r.pass(20 * time.Millisecond)
	require.ErrorIs(t, s.CPUErr, shedder.ErrStale)
	require.ErrorIs(t, s.SchedErr, shedder.ErrStale)
	require.Negative(t, s.QueueDelay)
	require.False(t, r.pass(3*time.Second).Overloaded, "fails open")
	old.cpu.Time, old.sched.Time = r.now, r.now
	s = r.pass(20 * time.Millisecond)
	require.True(t, s.Overloaded)
	require.NoError(t, s.CPUErr)
}

func TestImplausibleSamplesAreNotBelieved(t *testing.T) {
	for _, usage := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -0.1, 57} {
		r := newRig(t, shedder.Options{})
		r.cpu.usage = usage
		require.ErrorIs(t, r.look().CPUErr, shedder.ErrImplausible, "%v", usage)
		r = newRig(t, shedder.Options{})
		r.cpu.smoothed = usage
		require.ErrorIs(t, r.look().CPUErr, shedder.ErrImplausible, "%v", usage)
	}
	r := newRig(t, shedder.Options{})
	r.cpu.usage, r.cpu.smoothed = 1.1, 0
	require.NoError(t, r.look().CPUErr)
	r.sched.wait = -1
	s := r.pass(20 * time.Millisecond)
	require.ErrorIs(t, s.SchedErr, shedder.ErrImplausible)
	require.Negative(t, s.QueueDelay)
}

// A wait for a processor of a second delays requests, or the CPU is busy. A sensor that says so while neither is true refuses
// nobody, and Stats say so.
func TestWaitsThatNothingShowsAreNotBelieved(t *testing.T) {
	s := newService(t, shedder.Options{}, 10*time.Millisecond)
	s.run(5*second, 200)
	s.reset()
	s.sched.wait = second
	s.run(900*time.Millisecond, 200)
	require.NoError(t, s.shed.Stats().SchedErr, "it might be a moment")
	s.run(2*second, 200)
	require.ErrorIs(t, s.shed.Stats().SchedErr, shedder.ErrImplausible)
	s.run(10*second, 200)
	require.Zero(t, s.refused)
	require.Zero(t, s.shed.Stats().Drop)
	s.sched.wait = 0
	s.run(3*second, 200)
	require.NoError(t, s.shed.Stats().SchedErr)
}

func TestWaitsAreBelievedIfTheCPUIsBusy(t *testing.T) {
	s := newService(t, shedder.Options{}, 10*time.Millisecond)
	s.run(5*second, 200)
	s.hot()
	s.run(5*second, 200)
	s.sched.wait = second
	s.run(second, 200)
	require.Positive(t, s.shed.Stats().Drop)
	require.NoError(t, s.shed.Stats().SchedErr)
}

func TestWaitsAreBelievedIfRequestsAreLate(t *testing.T) {
	s := newService(t, shedder.Options{}, 10*time.Millisecond)
	s.run(5*second, 200)
	s.takes, s.sched.wait = 500*time.Millisecond, 300*time.Millisecond
	s.run(2*second, 200)
	require.Positive(t, s.shed.Stats().Drop)
	require.NoError(t, s.shed.Stats().SchedErr)
}

// broken panics, or ends the goroutine that asks.
type broken struct{ exit bool }

type (
	brokenCPU   struct{ *broken }
	brokenSched struct{ *broken }
)

func (b broken) fail() {
	if b.exit {
		runtime.Goexit()
	}
	panic("nil map")
}

func (b brokenCPU) Sample(time.Time) (s stats.CPUSample)     { b.fail(); return s }
func (b brokenSched) Sample(time.Time) (s stats.SchedSample) { b.fail(); return s }

func TestPanicOfASamplerDoesNotReachTheRequest(t *testing.T) {
	r := rig{t: t, now: time.Unix(1e9, 0)}
	r.shed = spillway.Must(shedder.New(&shedder.Options{CPU: brokenCPU{&broken{}}, Sched: brokenSched{&broken{}}}))
	require.Equal(t, 1000, r.enterMany(1000), "fails open")
	s := r.pass(time.Second)
	require.EqualError(t, s.CPUErr, "shedder: sampler panicked: nil map")
	require.EqualError(t, s.SchedErr, "shedder: sampler panicked: nil map")
	require.Negative(t, s.QueueDelay)
	require.Equal(t, r.now, s.Time, "ticks go on")
}

func TestSamplerThatEndsItsGoroutineDoesNotStopTheTicks(t *testing.T) {
	r := rig{t: t, now: time.Unix(1e9, 0)}
	b := &broken{exit: true}
	r.shed = spillway.Must(shedder.New(&shedder.Options{CPU: &r.cpu, Sched: brokenSched{b}}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.look()
	}()
	<-done
	b.exit = false
	r.sleep(20 * time.Millisecond)
	require.Equal(t, r.now, r.look().Time)
}

func TestLeakAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("allocations are not counted under the race detector: it adds its own")
	}
	r := stuck(t, shedder.Options{MaxShed: 0.5})
	r.flood(time.Second, time.Millisecond)
	now := r.now
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Microsecond)
		ticket, err := r.shed.Admit(context.Background(), spillway.Request{Arrived: now})
		if err == nil {
			r.shed.Done(spillway.Request{Arrived: now}, ticket, spillway.Result{})
		}
	}))
}
