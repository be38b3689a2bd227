package shedder_test

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/shedder"
)

func TestOnlySuccessesTeachLatency(t *testing.T) {
	for _, o := range []spillway.Outcome{spillway.Failure, spillway.Ignored, spillway.Dropped} {
		s := newService(t, shedder.Options{}, 10*time.Millisecond)
		s.run(3*second, 200)
		before := s.shed.Stats()
		require.InDelta(t, 10, before.MinRT.Seconds()*1e3, 1)
		for range 10_000 { // 10 s of fast failures, or of requests that their clients gave up
			s.sleep(time.Millisecond)
			_, err := s.enter()
			require.NoError(t, err)
			s.leave(1, 50*time.Microsecond, o)
		}
		require.InEpsilon(t, before.MinRT, s.shed.Stats().MinRT, 0.1, "%v", o)
	}
}

// A failure is an answer: a service that fails does work, and its rate counts. What a client gave up or what was dropped
// was no answer.
func TestFailuresAreAnswers(t *testing.T) {
	for o, counts := range map[spillway.Outcome]bool{spillway.Failure: true, spillway.Ignored: false, spillway.Dropped: false} {
		r := newRig(t, shedder.Options{})
		for range 3000 {
			r.sleep(time.Millisecond)
			_, err := r.enter()
			require.NoError(t, err)
			r.leave(1, 50*time.Microsecond, o)
		}
		if counts {
			require.InDelta(t, 1000, r.shed.Stats().MaxPass, 60)
		} else {
			require.Zero(t, r.shed.Stats().MaxPass)
		}
	}
}

func TestRefusedLaterOnLeavesNoTrace(t *testing.T) {
	r := newRig(t, shedder.Options{})
	for range 3000 {
		r.sleep(time.Millisecond)
		ticket, err := r.enter()
		require.NoError(t, err)
		r.shed.Done(spillway.Request{Arrived: r.now}, ticket, spillway.Result{Outcome: spillway.Refused})
	}
	s := r.look()
	require.Zero(t, s.InFlight)
	require.Zero(t, s.MaxPass)
	require.Zero(t, s.MinRT)
}

func TestFewSamplesDoNotDecideTheLatency(t *testing.T) {
	s := newService(t, shedder.Options{}, 10*time.Millisecond)
	s.run(3*second, 200)
	s.takes = time.Millisecond
	s.run(15*time.Millisecond, 200) // three lucky ones
	s.takes = 10 * time.Millisecond
	s.run(3*second, 200)
	require.Greater(t, s.shed.Stats().MinRT, 9*time.Millisecond)
}

func TestOverloadCannotJustifyItself(t *testing.T) {
	s := newPool(t, 4, 10*time.Millisecond) // 400/s
	s.run(5*second, 200)
	calm := s.shed.Stats().MinRT
	s.hot()
	s.sched.wait = 20 * time.Millisecond
	s.run(2*second, 2000)
	s.most = 0
	s.run(2*time.Minute, 2000)
	v := s.shed.Stats()
	require.Positive(t, s.refused)
	require.InEpsilon(t, calm, v.MinRT, 0.3, "two minutes of overload teach nothing")
	require.Less(t, s.most, int64(100), "400/s × (10 ms + what keeps the CPU full)")
}

func TestABacklogWorkedOffAtOnceIsNotARate(t *testing.T) {
	s := newService(t, shedder.Options{}, 5*time.Millisecond)
	s.run(2*second, 100)
	s.takes = time.Hour
	s.run(700*time.Millisecond, 430)
	for i := range s.working {
		s.working[i].ends = s.now
	}
	s.takes = 5 * time.Millisecond
	s.run(200*time.Millisecond, 100)
	require.Less(t, s.shed.Stats().MaxPass, 800.0, "300 in 0.7 s, not in a moment")
}

func TestLatencyFallsAtOnceAndRisesSlowly(t *testing.T) {
	s := newService(t, shedder.Options{}, 40*time.Millisecond)
	s.run(10*second, 200)
	require.InDelta(t, 40, s.shed.Stats().MinRT.Seconds()*1e3, 2)
	s.takes = 10 * time.Millisecond
	s.run(15*second, 200)
	require.Less(t, s.shed.Stats().MinRT, 12*time.Millisecond)
	s.takes = 14 * time.Millisecond
	s.run(15*second, 200)
	require.Less(t, s.shed.Stats().MinRT, 12*time.Millisecond, "a rise takes time")
	require.Zero(t, s.refused)
}

func TestSlowDependencyWithIdleCPUIsNotOverload(t *testing.T) {
	for _, slow := range []time.Duration{150 * time.Millisecond, 500 * time.Millisecond} {
		s := newService(t, shedder.Options{}, 50*time.Millisecond)
		s.run(10*second, 200)
		s.takes = slow
		s.run(1500*time.Millisecond, 200)
		require.LessOrEqual(t, s.refused, 180, "%v: until its first answers say that it is slow", slow)
		if slow <= 3*50*time.Millisecond {
			require.Zero(t, s.refused)
		}
		s.reset()
		s.run(time.Minute, 200)
		s.takes = 50 * time.Millisecond
		s.run(20*second, 200)
		require.Zero(t, s.refused, "%v", slow)
	}
}

func TestSaturatedPoolKeepsItsGoodput(t *testing.T) {
	for _, load := range []float64{2, 5, 10} {
		p := newPool(t, 8, 25*time.Millisecond) // 320/s
		p.run(10*second, 160)
		require.Zero(t, p.refused)
		p.run(500*time.Millisecond, load*320)
		require.Positive(t, p.refused, "load %v: seen within moments", load)
		require.Equal(t, shedder.Full, p.shed.Stats().Reason, "load %v", load)
		p.reset()
		p.run(20*second, load*320)
		require.GreaterOrEqual(t, p.good, int(0.98*320*20), "load %v", load)
		require.Less(t, p.most, int64(60), "load %v: latency stays below 200 ms", load)
		p.run(5*second, 160)
		p.reset()
		p.run(20*second, 160)
		require.Zero(t, p.refused, "load %v: nothing is left of it", load)
		require.False(t, p.shed.Stats().Overloaded)
	}
}

func TestAPoolThatStartsFullIsProtected(t *testing.T) {
	for _, load := range []float64{2, 3, 10} {
		p := newPool(t, 8, 25*time.Millisecond)
		p.run(10*second, load*320)
		p.reset()
		p.run(20*second, load*320)
		require.GreaterOrEqual(t, p.good, int(0.98*320*20), "load %v", load)
		require.Less(t, p.most, int64(80), "load %v", load)
	}
}

func TestAPoolThatFillsUpDuringAnOverloadOfTheCPUIsSeen(t *testing.T) {
	p := newPool(t, 8, 25*time.Millisecond)
	p.run(5*second, 160)
	p.hot()
	p.run(2*second, 3200)
	require.True(t, p.shed.Stats().Overloaded)
	p.cool()
	p.run(3*second, 3200)
	require.Equal(t, shedder.Full, p.shed.Stats().Reason)
	p.reset()
	p.run(5*second, 3200)
	require.GreaterOrEqual(t, p.good, int(0.97*320*5))
	require.Less(t, p.most, int64(80))
}

// The default MinLimit follows the CPUs, and a pool may be smaller than that.
func TestASmallPoolOnManyCPUsIsProtected(t *testing.T) {
	p := newPool(t, 8, 25*time.Millisecond)
	p.cpu.limit = 64
	p.run(10*second, 160)
	p.run(10*second, 640)
	p.reset()
	p.run(20*second, 640)
	require.GreaterOrEqual(t, p.good, int(0.98*320*20))
	require.Less(t, p.most, int64(60))
}

// A MinLimit that the user sets holds always, and so does a MaxLimit.
func TestLimitsOfTheUserHoldAlways(t *testing.T) {
	p := &service{rig: newRig(t, shedder.Options{MinLimit: 200, MaxLimit: 300}), slots: 8, takes: 25 * time.Millisecond}
	p.run(10*second, 160)
	p.run(10*second, 3200)
	require.GreaterOrEqual(t, p.most, int64(200))
	require.LessOrEqual(t, p.most, int64(300))
	require.GreaterOrEqual(t, p.shed.Stats().Limit, 200.0)
	r := newRig(t, shedder.Options{MaxLimit: 7})
	r.cool()
	require.Equal(t, 7, r.enterMany(100), "before anything is known")
}

// While all wait for something that is stuck, nothing is known of the rate of which the service is capable. That is neither
// a reason to let everybody in nor to let nobody in for ever.
func TestAPoolThatGetsStuckIsOpenAgainOnceItHeals(t *testing.T) {
	for _, load := range []float64{0.3, 2} {
		for _, stuck := range []time.Duration{6 * second, 9 * second, time.Minute} {
			p := newPool(t, 8, 25*time.Millisecond) // 320/s
			p.run(5*second, 160)
			p.run(5*second, load*320)
			p.takes = time.Hour
			for range int(stuck / second) {
				p.run(second, load*320)
				require.False(t, math.IsNaN(p.shed.Stats().Limit), "load %v, stuck for %v", load, stuck)
			}
			p.takes = 25 * time.Millisecond
			for i := range p.working {
				p.working[i].ends = p.now
			}
			p.run(10*second, 160)
			p.reset()
			p.run(10*second, 160)
			require.Zero(t, p.refused, "load %v, stuck for %v", load, stuck)
			require.GreaterOrEqual(t, p.good, 1590, "load %v, stuck for %v", load, stuck)
		}
	}
}

func TestTuningTheWindowDoesNotOpenASaturatedPool(t *testing.T) {
	p := newPool(t, 8, 25*time.Millisecond)
	p.run(5*second, 160)
	p.run(5*second, 640)
	require.Equal(t, shedder.Full, p.shed.Stats().Reason)
	for range 5 {
		o := p.shed.Options()
		o.Window += second
		require.NoError(t, p.shed.Tune(o))
		p.reset()
		p.run(2*second, 640)
		require.Less(t, p.most, int64(60))
		require.GreaterOrEqual(t, p.good, 620)
	}
	p.run(3*second, 160)
	p.reset()
	p.run(10*second, 160)
	require.Zero(t, p.refused)
}

// A second in which few ask does not open a pool that is full otherwise.
func TestAMomentInWhichFewAskDoesNotOpenAPool(t *testing.T) {
	p := newPool(t, 10, 200*time.Millisecond) // 50/s
	p.run(10*second, 25)
	p.run(10*second, 100)
	for range 5 {
		p.run(900*time.Millisecond, 30)
		p.reset()
		p.run(3*second, 100)
		require.Less(t, p.most, int64(60))
	}
	p.run(5*second, 25)
	require.False(t, p.shed.Stats().Overloaded)
}

// Goroutines that wait for a processor before the Shedder sees them fill no limit. A share of the requests is refused
// then until the wait is short again: all normal ones before the first critical one.
func TestAStandingQueueBeforeTheHandlerIsDropped(t *testing.T) {
	s := newService(t, shedder.Options{}, 5*time.Millisecond)
	s.run(3*second, 200)
	s.hot()
	s.pass(5 * second) // a CPU that is busy for longer than by chance
	s.sched.wait = 300 * time.Millisecond
	s.pass(2 * second)
	v := s.shed.Stats()
	require.Positive(t, v.Drop)
	require.LessOrEqual(t, v.Drop, 1.0)
	require.Equal(t, shedder.CPUHigh, v.Reason)
	refused, dropped := map[spillway.Priority]int{}, 0
	for i := range 1000 {
		s.sleep(time.Millisecond)
		p := spillway.Normal
		if i%100 == 0 { // fewer than are admitted at the greatest share of drops
			p = spillway.Critical
		}
		ticket, err := s.enterAs(p)
		if err == nil {
			s.shed.Done(spillway.Request{Arrived: s.now, Priority: p}, ticket, spillway.Result{Outcome: spillway.Success})
			continue
		}
		var rej *spillway.Rejection
		require.ErrorAs(t, err, &rej)
		refused[p]++
		if rej.Reason == "cpu queue" {
			dropped++
		}
	}
	require.Greater(t, dropped, 250)
	require.Zero(t, refused[spillway.Critical])
	s.sched.wait = 0
	s.cool()
	require.Zero(t, s.pass(10*second).Drop)
	require.False(t, s.shed.Stats().Overloaded)
}

// A quota of 0.4 CPUs stops a process for up to 60 of each 100 ms. Such waits are no queue.
func TestAQuotaPauseIsNoQueue(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := newService(t, shedder.Options{}, 5*time.Millisecond)
	s.cpu.limit = 0.4
	s.run(3*second, 200)
	s.cpu.throttled = 60 * time.Millisecond
	s.pass(300 * time.Millisecond)
	s.sched.wait = 60 * time.Millisecond
	v := s.pass(5 * second)
	require.Equal(t, 60*time.Millisecond, v.QuotaPause)
	require.Zero(t, v.Drop)
	require.False(t, v.Overloaded)
	s.sched.wait = 200 * time.Millisecond
	require.Positive(t, s.pass(5*second).Drop)
}

// A quota that is never used up stops nothing, whatever its periods are.
func TestAQuotaThatDoesNotBiteChangesNothing(t *testing.T) {
	run := func(periods uint64) shedder.Stats {
		p := newPool(t, 8, 25*time.Millisecond)
		p.cpu.limit, p.cpu.periods = 0.4, periods
		p.run(10*second, 160)
		p.run(10*second, 640)
		return p.shed.Stats()
	}
	v := run(3)
	require.Zero(t, v.QuotaPause)
	require.Equal(t, run(0).Limit, v.Limit)
}

// A quiet service is asked for some things at once, as by a browser that loads a page. Nothing is wrong with that.
func TestSmallBurstsOnAQuietServiceAreAdmitted(t *testing.T) {
	for _, every := range []time.Duration{200 * time.Millisecond, second, 5 * second} {
		s := newService(t, shedder.Options{}, 10*time.Millisecond)
		for range 100 {
			s.run(time.Millisecond, 6000)
			s.run(every, 0)
		}
		require.Zero(t, s.refused, "6 at once every %v, with an idle CPU", every)
	}
}

// An exporter or a log line must not see a huge number where there is no limit.
func TestNoLimitIsInfinite(t *testing.T) {
	require.True(t, math.IsInf(newRig(t, shedder.Options{}).look().Limit, 1))
}
