package law

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/race"
)

func TestTheTypicalLatencyIsLearnt(t *testing.T) {
	for _, takes := range []draw{constant(0.05), exponential(0.05), lognormal(0.05)} {
		p := newPlant(1, Options{}, 0, takes)
		p.run(10, 200)
		require.InEpsilon(t, 0.05, p.Latency().Seconds(), 0.25)
		require.Zero(t, p.refused)
	}
}

// The short calls end first. By Little's law, how long all of them stay shows from the first second on.
func TestTheFirstAnswersAreNotBelievedToBeTypical(t *testing.T) {
	short := 0
	for seed := range uint64(50) {
		p := newPlant(seed, Options{}, 0, exponential(2))
		for p.latency.samples == 0 {
			p.run(0.02, 100)
		}
		if p.Latency() < 700*time.Millisecond {
			short++ // a false alarm: the least mean stands for it then
		}
	}
	require.LessOrEqual(t, short, 10, "of 50 cold starts")
}

func TestLatencyFallsByQuartersAndRisesByDrift(t *testing.T) {
	p := Default()
	l := latency{typical: 0.1, samples: believed}
	l.learn(&p, 0.02, 1)
	require.InDelta(t, 0.08, l.typical, 1e-9)
	for range 30 {
		l.learn(&p, 0.02, 1)
	}
	require.InDelta(t, 0.02, l.typical, 1e-4)
	for range 60 {
		l.learn(&p, 10, 1)
	}
	require.InEpsilon(t, 0.02*math.Pow(1+p.Drift, 60), l.typical, 0.01, "a minute of Drift, whatever it sees")
	l = latency{}
	l.learn(&p, 0.5, 1)
	l.learn(&p, 2, 1)
	require.InDelta(t, 2, l.typical, 1e-9, "the first samples are believed as they are")
}

// What fills up, or is full, shows in that fewer leave than come: nothing is learnt from it.
func TestWhatDoesNotKeepPaceTeachesNothing(t *testing.T) {
	p := newPlant(3, Options{MinLimit: 1e6}, 8, constant(0.025))
	p.run(20, 1000)
	require.Less(t, p.Latency(), 60*time.Millisecond, "nothing, or what the first answers took; requests wait for seconds")
}

func TestRefusalsSpoilASample(t *testing.T) {
	p := Default()
	l := latency{samples: believed, typical: 0.01}
	for range 200 {
		_, _, ok := l.take(&p, &bucket{admitted: 10, refused: 1, ended: 10, answered: 10, latency: 5, inside: 5})
		require.False(t, ok)
	}
	calm := 0
	for ; calm < 200; calm++ {
		if _, _, ok := l.take(&p, &bucket{admitted: 10, left: 10, ended: 10, answered: 10, latency: 0.1, inside: 0.1}); ok {
			break
		}
	}
	require.GreaterOrEqual(t, calm, int(1.8/span), "a second of calm, and then one of the sample")
	require.Less(t, calm, int(3/span))
}

func TestFailuresAloneTeachNoLatency(t *testing.T) {
	p := Default()
	l := latency{samples: believed, typical: 0.01}
	for range 1000 {
		_, _, ok := l.take(&p, &bucket{admitted: 10, left: 10, ended: 10, inside: 0.001})
		require.False(t, ok)
	}
}

func TestAPoolThatIsHitByAStepIsProtected(t *testing.T) {
	for _, load := range []float64{1.5, 2, 5, 10} {
		p := newPlant(4, Options{}, 8, exponential(0.025)) // 320/s
		p.run(20, 160)
		require.Zero(t, p.refused)
		p.run(1, 320*load)
		p.reset()
		p.run(30, 320*load)
		require.Greater(t, p.good, 0.96*320*30, "load %v", load)
		require.Less(t, p.most, 100.0, "load %v", load)
		require.Greater(t, p.reasons[Full], p.reasons[Calm], "load %v", load)
		require.Zero(t, p.reasons[CPU])
		p.run(5, 160)
		p.reset()
		p.run(20, 160)
		require.Zero(t, p.refused, "load %v: nothing is left of it", load)
	}
}

func TestAPoolThatStartsFullIsProtected(t *testing.T) {
	for _, load := range []float64{1.5, 3, 10} {
		p := newPlant(5, Options{}, 8, constant(0.025))
		p.run(10, 320*load)
		p.reset()
		p.run(30, 320*load)
		require.Greater(t, p.good, 0.96*320*30, "load %v", load)
		require.Less(t, p.most, 120.0, "load %v", load)
	}
}

// The limit tightens while much is refused, which makes latency low, and is wide again afterwards.
func TestTheLimitTightensWhileMuchIsRefused(t *testing.T) {
	p := newPlant(6, Options{}, 8, constant(0.025))
	p.run(20, 160)
	wide := p.v.Limit
	p.run(10, 3200)
	tight := p.v.Limit
	require.Less(t, tight, 0.65*wide)
	p.run(20, 160)
	require.Greater(t, p.v.Limit, 1.5*tight)
}

// A light load shortly before does not hide a queue: it says nothing about how much the service can answer.
func TestAStepAfterFewAnswersIsProtected(t *testing.T) {
	for name, takes := range map[string]func(float64) draw{"constant": constant, "exponential": exponential, "lognormal": lognormal} {
		for _, slots := range []int{1, 4, 8} {
			late := 0
			for seed := range uint64(50) {
				p := newPlant(seed, Options{}, slots, takes(float64(slots)/30)) // 30/s
				p.run(2, 15)
				p.run(5, 150)
				if p.refused < 0.3*5*150 {
					late++
				}
			}
			require.LessOrEqual(t, late, 3, "%s, %d slots: of 50", name, slots)
		}
	}
}

// pure skips a long test where it would be ten times as long: the law has one goroutine.
func pure(t *testing.T) {
	t.Helper()
	if race.Enabled {
		t.Skip("the law is one goroutine: its figures are checked without the race detector, ten times faster")
	}
}

// Slow and uneven calls are served from a cold start on, whatever chance does. A false alarm heals.
func TestSlowUnevenCallsAreServed(t *testing.T) {
	pure(t)
	for name, takes := range map[string]draw{"exponential": exponential(1), "lognormal": lognormal(1), "bimodal": bimodal(0.3), "constant": constant(1)} {
		alarms, ever := 0, 0
		for seed := range uint64(100) {
			p := newPlant(seed, Options{}, 0, takes)
			p.run(30, 150)
			if p.share() > 0.01 {
				alarms++
			}
			p.reset()
			p.run(30, 150)
			if p.share() > 0.01 {
				ever++
			}
		}
		t.Logf("%s: refused in %d of 100 cold starts, and after half a minute still in %d", name, alarms, ever)
		require.LessOrEqual(t, alarms, 15, name)
		require.Zero(t, ever, "%s: a false alarm heals", name)
	}
}

// Answers that are missing mean that the dependency is slow, not that it is full.
func TestADependencyThatSlowsIsFollowed(t *testing.T) {
	for _, takes := range []func(float64) draw{constant, exponential} {
		p := newPlant(7, Options{}, 0, takes(0.1))
		p.run(20, 200)
		p.takes = takes(0.8)
		p.run(5, 200)
		p.reset()
		p.run(60, 200)
		require.LessOrEqual(t, p.share(), 0.001)
		p.takes = takes(0.1)
		p.run(60, 200)
		require.LessOrEqual(t, p.share(), 0.001)
	}
}

// A dependency that becomes 60 times slower counts as down at first, so it is refused much. The answers of before prove that
// it is slow.
func TestADependencyThatIsSixtyTimesSlowerIsFollowed(t *testing.T) {
	for seed := range uint64(5) {
		p := newPlant(seed, Options{}, 0, exponential(0.02))
		p.run(20, 400)
		p.takes = exponential(1.2)
		p.reset()
		p.run(5, 400)
		require.Less(t, p.share(), 0.2, "seed %d: refused at first", seed)
		p.reset()
		p.run(15, 400)
		require.Less(t, p.share(), 0.02, "seed %d: refused", seed)
	}
}

// A dependency that becomes slower than Far is followed, too: its answers come late, but they come. Without that, 60 % of the even
// calls are refused, and 30 % of the uneven ones.
func TestADependencyThatIsSlowerThanFarIsFollowed(t *testing.T) {
	for name, c := range map[string]struct {
		takes                func(float64) draw
		before, factor, rate float64
	}{"even": {constant, 0.1, 25, 400}, "uneven": {exponential, 0.11, 29, 700}} {
		require.Greater(t, c.factor, Default().Far)
		for seed := range uint64(4) {
			p := newPlant(seed, Options{}, 0, c.takes(c.before))
			p.run(20, c.rate)
			p.takes = c.takes(c.before * c.factor)
			p.reset()
			p.run(20, c.rate)
			require.Less(t, p.share(), 0.02, "%s, seed %d", name, seed)
		}
	}
}

// Some calls of a slow, very uneven dependency take so long that the rate of before has left the window when they end. It is
// remembered for as long as they may take: else the limit falls with it, and 20 % are refused.
func TestTheRateOfBeforeIsRememberedWhileLateAnswersCome(t *testing.T) {
	var refused float64
	const seeds = 4
	for seed := range uint64(seeds) {
		p := newPlant(seed, Options{}, 0, lognormal(0.274))
		p.run(20, 934)
		p.takes = lognormal(0.274 * 28)
		p.reset()
		p.run(20, 934)
		refused += p.share() / seeds
	}
	t.Logf("refused: %.3f", refused)
	require.Less(t, refused, 0.02)
}

// A dependency that is four times slower needs little more in flight than the wide limit allows, so hardly any answers are missing
// before the limit tightens. The answers fall with it then. 10 % are refused if they are compared with the longer past alone.
func TestAnswersThatFallWithTheLimitProveThatItIsSlow(t *testing.T) {
	var refused float64
	const seeds = 40
	for seed := range uint64(seeds) {
		p := newPlant(seed, Options{}, 0, exponential(0.4))
		p.run(20, 140)
		p.takes = exponential(0.4 * 4)
		p.reset()
		p.run(20, 140)
		refused += p.share() / seeds
	}
	t.Logf("refused: %.3f", refused)
	require.Less(t, refused, 0.09)
}

// Under a tight limit, a slow dependency answers so rarely that a tenth of a second without an answer is no stop.
func TestFewAnswersAreNoStop(t *testing.T) {
	var refused float64
	const seeds = 40
	for seed := range uint64(seeds) {
		p := newPlant(seed, Options{}, 0, bimodal(0.026))
		p.run(20, 100)
		p.takes = bimodal(0.026 * 13)
		p.reset()
		p.run(20, 100)
		refused += p.share() / seeds
	}
	t.Logf("refused: %.3f", refused)
	require.Less(t, refused, 0.05)
}

// With few requests per second, the law often takes no step for a tenth of a second. That is no standstill, and ends no verdict:
// it did, and 23 % were refused.
func TestFewStepsAreNoStandstill(t *testing.T) {
	var refused float64
	const seeds = 8
	for seed := range uint64(seeds) {
		p := newPlant(seed, Options{}, 0, lognormal(0.142))
		p.sparse = true
		p.run(20, 19)
		p.takes = lognormal(0.142 * 28)
		p.reset()
		p.run(20, 19)
		refused += p.share() / seeds
	}
	t.Logf("refused: %.3f", refused)
	require.Less(t, refused, 0.06)
}

// A dependency that stops answers nothing, so it is not slow. Soon after it is back, few clients wait: 103 on average, and 126 if
// fewer answers in the seconds of the stop were taken for a sign of a slow service.
func TestADependencyThatStopsIsNotSlow(t *testing.T) {
	var waiting float64
	for seed := range uint64(10) {
		p := newPlant(seed, Options{}, 8, exponential(0.02))
		p.run(20, 280)
		p.stall(3, 280)
		p.run(0.6, 280)
		waiting += p.inside() / 10
		p.run(20, 280)
		require.Less(t, p.latency.typical, 0.03, "seed %d: typical latency in seconds", seed)
	}
	require.Less(t, waiting, 112.0, "in flight 0.6 s later")
}

// A database that was stopped in an overload answers slowly at first, since it connects anew and its caches are cold. A restart
// also fails a few requests now and then. Neither makes it a slow service, for which the limit would open.
func TestADependencyThatComesBackColdIsNotSlow(t *testing.T) {
	for name, down := range map[string]func(p *plant){
		"a stop": func(p *plant) { p.stall(3, 1000) },
		"a restart": func(p *plant) {
			p.fails, p.takes = true, exponential(1)
			p.run(3, 1000)
			p.fails = false
		},
		"failures": func(p *plant) {
			p.fails, p.takes = true, exponential(0.05)
			p.run(3, 1000)
			p.fails = false
		},
	} {
		for seed := range uint64(10) {
			p := newPlant(seed, Options{}, 8, exponential(0.016)) // 500/s
			p.run(20, 250)
			p.run(5, 1000)
			down(p)
			p.takes = exponential(0.1)
			p.run(1, 1000)
			p.takes = exponential(0.016)
			p.reset()
			p.run(10, 1000)
			require.Less(t, p.most/500, 0.25, "%s, seed %d: seconds that requests wait; 0.5 if a verdict falls at once", name, seed)
			require.Less(t, p.inside()/500, 0.1, "%s, seed %d: the same in the end", name, seed)
		}
	}
}

// A pool that is slow for a second looks like a slow dependency, so more requests are let in. They only wait, so they prove no longer
// latency.
func TestWhatOnlyWaitsProvesNoLatency(t *testing.T) {
	for seed := range uint64(10) {
		p := newPlant(seed, Options{}, 8, exponential(0.016)) // 500/s
		p.run(20, 250)
		p.run(5, 1000)
		p.takes = exponential(0.1)
		p.run(1, 1000)
		p.takes = exponential(0.016)
		p.reset()
		p.run(10, 1000)
		require.Less(t, p.most/500, 0.8, "seed %d: seconds that requests wait; 4 if they prove it", seed)
	}
}

// Much was refused while the pool answered as ever, so it was full. When it gives fewer answers, it is slower and still full: more
// requests would only wait.
func TestAFullPoolThatSlowsIsStillFull(t *testing.T) {
	for seed := range uint64(10) {
		p := newPlant(seed, Options{}, 8, exponential(0.016)) // 500/s
		p.run(10, 250)
		p.run(5, 1000)
		p.takes = exponential(0.1)
		p.reset()
		p.run(4, 1000)
		p.takes = exponential(0.016)
		p.run(2, 1000)
		require.Less(t, p.most, 30.0, "seed %d", seed)
	}
}

// The same for a pool of a few slots, just above its capacity: at some moments hardly any is refused, and the best rate of so few answers
// owes much to chance.
func TestASmallPoolThatSlowsIsStillFull(t *testing.T) {
	waited := 0.0
	for seed := range uint64(20) {
		p := newPlant(seed, Options{}, 4, exponential(0.016)) // 250/s
		p.run(10, 175)
		p.run(5, 300)
		p.takes = exponential(0.16)
		p.reset()
		p.run(4, 300)
		p.takes = exponential(0.016)
		p.run(4, 300)
		t.Log(seed, p.most/250)
		waited += p.most / 250 / 20
	}
	t.Log(waited)
	require.Less(t, waited, 0.5, "seconds that requests wait")
}

// The same for a pool that was full for a moment only. A pool that was not full becomes so when it slows, and what it answers is late.
func TestAPoolThatSlowsIsFull(t *testing.T) {
	for _, c := range []struct {
		name         string
		slots        int
		takes        float64 // seconds
		calm, load   float64 // of its capacity
		full         float64 // seconds of the load before it slows
		slower, slow float64 // times, and for how many seconds
		mean, most   float64 // seconds that requests wait, over the seeds
	}{
		// A window of 40 of its few answers shows that it is full. With 160, 12 seconds would wait.
		{"full for three seconds only", 6, 0.12, 0.7, 5, 3, 8, 6, 3, 10},
		// It pauses for longer than before. If a queue began anew after each pause, 2 seconds would wait.
		{"not full before", 16, 0.1, 0.8, 0.8, 0, 8, 10, 1.5, 4},
	} {
		mean, most, rate := 0.0, 0.0, float64(c.slots)/c.takes
		for seed := range uint64(20) {
			p := newPlant(seed, Options{}, c.slots, exponential(c.takes))
			p.run(15, c.calm*rate)
			p.run(c.full, c.load*rate)
			p.takes = exponential(c.takes * c.slower)
			p.reset()
			p.run(c.slow, c.load*rate)
			p.takes = exponential(c.takes)
			p.run(4, c.load*rate)
			mean += p.most / rate / 20
			most = max(most, p.most/rate)
		}
		t.Logf("%s: %.2f s, %.2f s at most", c.name, mean, most)
		require.Less(t, mean, c.mean, "%s: seconds that requests wait", c.name)
		require.Less(t, most, c.most, "%s: seconds that requests wait at most", c.name)
	}
}

// Of a few calls a second that become slow, the limit costs answers. How long that takes to prove does not depend on how many it leaves.
func TestFewCallsThatSlow(t *testing.T) {
	var refused, all float64
	for seed := range uint64(40) {
		p := newPlant(seed, Options{}, 0, lognormal(0.157))
		p.run(15, 13)
		p.takes = lognormal(2.1)
		p.reset()
		p.run(20, 13)
		refused, all = refused+p.refused, all+p.refused+p.admitted
	}
	t.Log(refused / all)
	require.Less(t, refused/all, 0.26, "refused; 0.29 if the proof waits for forty of those that are left")
}

// What shows that a service is full: as many answers as ever although much is refused, and with no more in flight than the limit allows.
func TestWhatShowsThatAServiceIsFull(t *testing.T) {
	for name, c := range map[string]struct {
		change func(l *Law, recent *bucket)
		full   bool
	}{
		"much is refused":         {func(*Law, *bucket) {}, true},
		"as many as by chance":    {func(_ *Law, b *bucket) { b.ended = 76 }, true},
		"fewer answers":           {func(_ *Law, b *bucket) { b.ended = 74 }, false},
		"answers to a crowd":      {func(l *Law, _ *bucket) { l.flow.settled = 0.5 }, false},
		"the CPU is short":        {func(l *Law, _ *bucket) { l.cpu.busy = true }, false},
		"another limit refuses":   {func(l *Law, _ *bucket) { l.little = false }, false},
		"answers are missing":     {func(l *Law, _ *bucket) { l.flow.missing = true }, false},
		"the latency is a guess":  {func(l *Law, _ *bucket) { l.latency.guessed = true }, false},
		"the latency is in doubt": {func(l *Law, _ *bucket) { l.flow.before.typical = 0.1 }, false},
		"few are in flight":       {func(l *Law, _ *bucket) { l.history.n, l.flow.limit = 4, 4 }, false},
	} {
		l := New(Default())
		l.little, l.history.rate, l.history.n, l.latency.typical, l.flow.limit, l.flow.settled = true, 100, 10, 0.1, 10, 5
		recent, r := bucket{admitted: 100, refused: 100, ended: 100, inside: 10}, Reading{Dt: 0.5}
		c.change(l, &recent)
		l.flow.sate(l, &r, &recent, 1, true)
		require.False(t, l.flow.isSated(l.history.n), "%s: half a second is too short", name)
		l.flow.sate(l, &r, &recent, 1, true)
		require.Equal(t, c.full, l.flow.isSated(l.history.n), name)
		lost := bucket{admitted: 10, refused: 190, ended: 10}
		for range 18 {
			l.flow.sate(l, &r, &lost, 1, true)
		}
		require.Equal(t, c.full, l.flow.isSated(l.history.n), "%s: it gives fewer answers for 9 s", name)
		for range 3 {
			l.flow.sate(l, &r, &lost, 1, true)
		}
		if c.full {
			require.False(t, l.flow.isSated(l.history.n), "%s: another dependency may be slow", name)
			l.flow.sate(l, &r, &recent, 1, true)
			l.flow.sate(l, &r, &recent, 1, true)
		}
		l.flow.missing, l.flow.before.typical, l.latency.guessed = false, 0, false
		l.flow.sate(l, &r, &recent, 1, false)
		require.Equal(t, c.full, l.flow.isSated(l.history.n), "%s: hardly any is refused at the moment", name)
		l.flow.sate(l, &r, &recent, 1, false)
		require.False(t, l.flow.isSated(l.history.n), "%s: hardly any is refused", name)
		l.flow.sate(l, &r, &recent, 1, true)
		l.flow.sate(l, &r, &recent, 1, true)
		l.flow.sate(l, &r, &bucket{admitted: 50, ended: 50}, 1, false)
		require.False(t, l.flow.isSated(l.history.n), "%s: a pause", name)
	}
}

// A pool that is slow for seconds looks like a slow dependency, and what is let in then waits. A window that is shorter than this wait is no
// proof of a longer latency: else 0.65 instead of 0.07 s of work waits in the end.
func TestAProofNeedsALatency(t *testing.T) {
	var waiting float64
	const seeds = 40
	for seed := range uint64(seeds) {
		p := newPlant(seed, Options{}, 8, half(0.02)) // 400/s
		p.run(20, 320)
		p.takes = half(0.16)
		p.run(5, 320)
		p.takes = half(0.02)
		p.run(3, 320)
		waiting += p.inside() / 400 / seeds
	}
	t.Logf("seconds of work that wait: %.3f", waiting)
	require.Less(t, waiting, 0.1)
}

// A pool that is slow for a second answers fewer requests than before, in the order of a queue. They wait, so none is missing.
func TestAPoolThatIsSlowForASecondMissesNoAnswers(t *testing.T) {
	var wait float64
	const seeds = 20
	for seed := range uint64(seeds) {
		p := newPlant(seed, Options{}, 8, exponential(0.016)) // 500/s
		p.run(20, 350)
		p.takes = exponential(0.1)
		p.reset()
		p.run(1, 350)
		p.takes = exponential(0.016)
		p.run(5, 350)
		wait += p.most / 500 / seeds
	}
	t.Logf("seconds that requests wait: %.2f; 0.42 if answers count as missing", wait)
	require.Less(t, wait, 0.3)
}

// Calls that take at least half as long as the mean come in order at first, as from a queue. But a queue adds no more to the
// latency than the time that passes.
func TestALatencyThatJumpsIsNoQueue(t *testing.T) {
	half := func(s float64) draw { return func(r *rand.Rand) float64 { return s/2 + s/2*r.ExpFloat64() } }
	var refused float64
	const seeds = 8
	for seed := range uint64(seeds) {
		p := newPlant(seed, Options{}, 0, half(0.34))
		p.run(20, 180)
		p.takes = half(8)
		p.reset()
		p.run(20, 180)
		refused += p.share() / seeds
	}
	t.Logf("refused: %.3f", refused)
	require.Less(t, refused, 0.01)
}

// A process starts into a flood while its CPU is full. When the CPU has time to spare, the requests wait for the database, so
// letting in more of them helps nobody.
func TestSpareCPUOpensNoPileAfterAColdStart(t *testing.T) {
	for seed := range uint64(10) {
		p := newPlant(seed, Options{}, 8, constant(0.02)) // 400/s
		p.r.CPU, p.r.Smoothed, p.r.Wait = 1, 1, 0.02
		p.stall(0.35, 1200)
		p.run(0.5, 1200)
		p.r.CPU, p.r.Wait = 0.85, 0
		p.reset()
		p.run(4, 1200)
		require.Less(t, p.most/400, 0.15, "seed %d: seconds that requests wait; 0.26 if the CPU is filled", seed)
	}
}

// A load that falls leaves fewer answers, and none of them is missing.
func TestALoadThatFallsMissesNoAnswers(t *testing.T) {
	for seed := range uint64(20) {
		p := newPlant(seed, Options{}, 0, exponential(0.02))
		p.run(20, 500)
		for range 200 {
			p.run(0.05, 150)
			require.False(t, p.flow.missing)
		}
	}
}

// A process starts into a flood, and its database is not ready yet, so even the first answers have waited. Their latency may not hold a
// pile in place, although the quota bites.
func TestAQuotaHoldsNoPileAfterAColdStart(t *testing.T) {
	for seed := range uint64(10) {
		p := newPlant(seed, Options{}, 8, constant(0.02)) // 400/s
		p.r.CPU, p.r.Smoothed, p.r.Pause, p.r.Running = 1, 1, 0.06, 0.4
		p.stall(0.35, 1200)
		p.run(5, 1200)
		require.Less(t, p.inside()/400, 0.3, "seed %d: seconds that requests wait", seed)
	}
}

// A latency that was measured while a quota stopped the process includes the pauses, so they are not added again.
func TestPausesOfAQuotaCountOnce(t *testing.T) {
	limit := func(then, now float64) float64 {
		l := New(Default())
		l.history.rate, l.latency.left, l.quota.paused = 100, 1-then, now
		l.latency.believe(0.1)
		l.flow.bound(l, &Reading{Mix: 1})
		return l.flow.limit
	}
	require.Equal(t, limit(0, 0), limit(0.6, 0.6))
	require.Equal(t, limit(0, 0), limit(0.6, 0))
	require.Greater(t, limit(0, 0.6), 2*limit(0, 0))
}

// A quota that stops the process for most of each period uses all of its time only if enough requests are inside when it runs.
func TestAQuotaKeepsItsTimeBusy(t *testing.T) {
	squeezed := func(pause, running float64) float64 {
		p := newPlant(1, Options{}, 8, constant(0.02)) // 400/s
		p.run(20, 200)
		p.r.CPU, p.r.Smoothed, p.r.Pause, p.r.Running = 1, 1, pause, running
		p.run(20, 4000)
		require.InDelta(t, 0.125, p.cpu.squeeze, 1e-9)
		return p.cpu.limit
	}
	require.Less(t, squeezed(0, 1), 6.0)
	require.Greater(t, squeezed(0.06, 0.4), 400*0.02/0.4)
}

// What comes in the pauses of a quota has room, but not while a flood keeps the process busy: it would only wait.
func TestAFloodTakesTheRoomForPauses(t *testing.T) {
	p := newPlant(1, Options{}, 1, constant(0.0025)) // 400/s
	p.run(20, 200)
	p.r.CPU, p.r.Smoothed, p.r.Pause, p.r.Running = 1, 1, 0.06, 0.4
	p.run(1.5, 4000)
	require.Less(t, p.cpu.limit, 0.5*400*0.06)
}

// The more is refused while the CPU is full, the faster the room goes. Little that is refused takes nothing.
func TestTheRoomGoesWithTheRefusedShare(t *testing.T) {
	for refused, left := range map[float64]float64{0: 1, 5: 1, 10: 0.729, 50: 0.125} {
		l := New(Default())
		l.latency.believe(0.01)
		l.Step(&Reading{Dt: 1, InFlight: 2, Admitted: 100 - refused, Refused: refused, Left: 100, Ended: 100, Answered: 100, Latency: 1})
		l.cpu.integrate(l, &Reading{CPU: 1})
		require.InDelta(t, left, l.cpu.stretch, 1e-9, "%v of 100 are refused", refused)
	}
}

// A dependency that answers nothing for a while is no reason to open the door, and its return is seen at once.
func TestADependencyThatIsStuckAndReturns(t *testing.T) {
	p := newPlant(8, Options{}, 8, constant(0.025))
	p.run(20, 160)
	p.takes = constant(5)
	p.run(5, 160)
	p.takes = constant(0.025)
	p.run(10, 160)
	p.reset()
	p.run(10, 160)
	require.Zero(t, p.refused)
	require.Less(t, p.most, 20.0)
}

func TestALightLoadIsNeverRefused(t *testing.T) {
	for seed := range uint64(20) {
		for _, slots := range []int{0, 16} {
			p := newPlant(seed, Options{}, slots, exponential(0.02)) // 16 slots: 800/s
			p.run(60, 400)
			require.Zero(t, p.refused, "seed %d, %d slots", seed, slots)
		}
	}
}

func TestTheUsersLimitsHoldAlways(t *testing.T) {
	p := newPlant(9, Options{MinLimit: 30, MaxLimit: 50}, 8, constant(0.025))
	require.InDelta(t, 50, p.Step(&p.r).Limit, 0, "while nothing is known")
	for range 20 {
		p.run(1, 1600)
		require.GreaterOrEqual(t, p.v.Limit, 30.0)
		require.LessOrEqual(t, p.v.Limit, 50.0)
		require.LessOrEqual(t, p.most, 50.0)
	}
	p = newPlant(9, Options{MinLimit: 30}, 8, constant(0.025))
	p.r.CPU, p.r.Smoothed = 1, 1
	p.run(20, 1600)
	require.GreaterOrEqual(t, p.v.Limit, 30.0)
}

func TestTheDefaultFloorIsForTheCPUOnly(t *testing.T) {
	p := newPlant(10, Options{}, 2, constant(0.1)) // 20/s
	p.r.CPUs = 64
	p.run(30, 10)
	p.run(60, 40)
	require.Less(t, p.v.Limit, 20.0, "a pool of two is not floored by 64 processors")
	r := Reading{CPUs: 64}
	require.InDelta(t, 128, p.floor(&r), 0)
	r.CPUs = 0.3
	require.InDelta(t, 4, p.floor(&r), 0)
	p.o.MinLimit = 1
	require.InDelta(t, 1, p.floor(&r), 0)
}

// busy is a service of two slots, its processors, under the given load: usage follows from how many are taken.
func busy(o Options, load float64) *plant {
	p := newPlant(11, o, 2, constant(0.01)) // 200/s
	p.run(20, 100)
	p.r.CPU, p.r.Smoothed = 1, 1
	p.run(3, 200*load)
	p.reset()
	return p
}

func TestAShortCPULimits(t *testing.T) {
	for _, load := range []float64{2, 10} {
		p := busy(Options{}, load)
		p.run(20, 200*load)
		require.Greater(t, p.good, 0.95*200*20)
		require.Less(t, p.most, 40.0)
		require.Positive(t, p.reasons[CPU])
		p.r.CPU, p.r.Smoothed = 0.5, 0.5
		p.run(10, 100)
		require.Equal(t, Calm, p.v.Reason)
	}
}

// The integral: the bound shrinks while the CPU is full though much is refused, and grows while it has time to spare.
func TestTheCPUIntegral(t *testing.T) {
	p := busy(Options{}, 5)
	p.run(10, 1000)
	low := p.cpu
	require.Less(t, low.stretch, 1.0)
	require.LessOrEqual(t, low.squeeze, 1.0)
	require.GreaterOrEqual(t, low.squeeze, 0.125)
	p.r.CPU, p.r.Smoothed = 0.5, 1
	p.run(5, 1000)
	require.Greater(t, p.cpu.stretch, low.stretch)
	require.InDelta(t, 1, p.cpu.squeeze, 1e-9)
	require.LessOrEqual(t, p.cpu.stretch, 1000.0)
	p.r.Smoothed = 0.5
	p.run(60, 100)
	require.InDelta(t, 1, p.cpu.stretch, 0.01, "calm brings it back")
}

func TestTheDropFollowsTheStandingWait(t *testing.T) {
	p := Default()
	var c cpu
	wait := func(seconds, wait float64, r Reading) {
		for range int(seconds / tick) {
			r.Dt, r.Wait, r.WaitFresh = tick, wait, true
			c.wait(&p, &r, 0)
			require.GreaterOrEqual(t, c.drop, 0.0)
			require.Less(t, c.drop, 1.0)
		}
	}
	wait(1, p.Wait, Reading{})
	require.Zero(t, c.drop, "below the target")
	wait(0.06, 1, Reading{})
	require.Zero(t, c.drop, "a moment is no queue that stands")
	wait(1, 5.5*p.Wait, Reading{})
	some := c.drop
	require.Positive(t, some)
	wait(1, 5.5*p.Wait, Reading{})
	require.Greater(t, c.drop, some, "it integrates")
	wait(20, 0, Reading{})
	require.Zero(t, c.drop)
	wait(5, 0.06, Reading{Pause: 0.06})
	require.Zero(t, c.drop, "a quota pause is no queue")
	before := c
	c.wait(&p, &Reading{Dt: tick, Wait: 9}, 0)
	require.Equal(t, before, c, "an old sample says nothing")
	for range 50 {
		c.wait(&p, &Reading{Dt: tick, Wait: 0.3, WaitFresh: true}, 0.5)
	}
	require.Zero(t, c.drop, "and neither is the time that the process stood still")
	wait(1, 5.5*p.Wait, Reading{})
	require.Positive(t, c.waited)
	for range len(c.waits) {
		c.wait(&p, &Reading{Dt: 0.2, WaitFresh: true}, 0)
	}
	require.Zero(t, c.waited, "few requests per second, and so few steps, are no standstill")
}

// So many start at once that they share the CPU and none of them ends.
func TestAFullCPULimitsBeforeAnythingIsAnswered(t *testing.T) {
	p := newPlant(12, Options{}, 0, constant(1e6))
	p.r.CPUKnown, p.r.CPUFresh, p.r.CPUs, p.r.Running = true, true, 2, 1
	p.run(0.5, 300)
	require.Equal(t, math.Inf(1), p.v.Limit, "the CPU is idle: they may just take long")
	p.r.CPU, p.r.Smoothed = 1, 0.5
	p.run(0.1, 300)
	require.Equal(t, math.Inf(1), p.v.Limit, "no goroutine waits for the CPU")
	p.r.Wait, p.r.WaitFresh = 0.01, true
	p.run(0.1, 300)
	require.Equal(t, 4.0, p.v.Limit)
	require.Equal(t, CPU, p.v.Reason)
}

func TestASignalPutsTheLeastLimitInForce(t *testing.T) {
	p := newPlant(12, Options{MinLimit: 3}, 0, constant(0.01))
	p.r.Signal = true
	p.run(0.04, 100)
	require.Equal(t, 3.0, p.v.Limit, "before anything is known")
	require.Equal(t, Signal, p.v.Reason)
	p.r.Signal = false
	p.run(0.5, 10)
	require.Equal(t, Signal, p.v.Reason, "it cools down")
	p.run(5, 10)
	require.Equal(t, Calm, p.v.Reason)
	p = busy(Options{}, 3)
	p.r.Signal = true
	p.run(1, 600)
	require.Equal(t, CPU, p.v.Reason, "a signal does not hide the CPU")
}

// An idle CPU is no reason to let more in while a signal of the user's is high.
func TestASignalIsNotOpenedByAnIdleCPU(t *testing.T) {
	p := newPlant(13, Options{}, 0, constant(0.05))
	p.run(10, 200)
	p.takes = constant(3)
	p.r.Signal = true
	for range 30 {
		p.run(1, 200)
		require.Equal(t, Signal, p.v.Reason)
		require.Less(t, p.v.Limit, 250.0)
	}
}

func TestTheLetter(t *testing.T) {
	p := newPlant(14, Options{CPUOnly: true, MinLimit: 1}, 0, constant(0.1))
	p.run(10, 500)
	p.r.CPU, p.r.Wait = 1, 1
	p.run(2, 500)
	require.Equal(t, Verdict{Limit: math.Inf(1), Quick: p.v.Quick}, p.v, "neither raw usage nor waits count")
	p.r.Smoothed = 0.9
	p.run(0.02, 500)
	require.InDelta(t, p.Pass()*p.Latency().Seconds(), p.v.Limit, 1e-6)
	require.Equal(t, CPU, p.v.Reason)
	require.Zero(t, p.v.Drop)
	p.r.Smoothed = 0.89
	p.run(0.9, 500)
	require.Equal(t, CPU, p.v.Reason, "it cools down")
	p.run(0.2, 500)
	require.Equal(t, Verdict{Limit: math.Inf(1), Quick: p.v.Quick}, p.v)
	p.Tune(Options{CPUOnly: true, Threshold: math.Inf(1), CoolDown: 1, Window: 5, MaxLimit: math.Inf(1)})
	p.r.Smoothed = 1
	p.run(1, 500)
	require.Equal(t, Calm, p.v.Reason, "no threshold")
}

// A standstill of the process is nobody's queue: what waited for it is given the time that it took.
func TestAStandstillGivesCredit(t *testing.T) {
	p := newPlant(15, Options{}, 0, constant(0.02))
	p.run(10, 200)
	before := p.v.Limit
	r := p.r
	r.Dt, r.InFlight = 0.3, 60
	r.Admitted, r.Left, r.Ended, r.Answered, r.Latency = 60, 4, 4, 4, 0.08
	require.Greater(t, p.Step(&r).Limit, before+30)
	p.run(5, 200)
	require.InEpsilon(t, before, p.v.Limit, 0.3, "it fades")
	require.Zero(t, p.refused)
}

// stand lets the process stand still: nothing comes, and nothing ends.
func (p *plant) stand(seconds float64) {
	r := p.r
	r.Dt, r.InFlight, r.CPUFresh, r.WaitFresh = seconds, p.inside(), false, false
	r.Admitted, r.Refused, r.Left, r.Ended, r.Answered, r.Latency, r.Quick = 0, 0, 0, 0, 0, 0, 0
	p.v = p.Step(&r)
}

// While much is refused, a standstill is no reason to let more in.
func TestAStandstillGivesNoCreditInAnOverload(t *testing.T) {
	p := newPlant(16, Options{}, 8, constant(0.02))
	p.run(10, 200)
	p.run(10, 4000)
	before := p.v.Limit
	p.stand(0.2)
	require.Less(t, p.v.Limit, 1.5*before+8)
}

// Nothing is answered while the process stands still. That does not make the service slow.
func TestAStandstillIsNoProofOfSlowness(t *testing.T) {
	for seed := range uint64(5) {
		p := newPlant(seed, Options{}, 0, constant(0.02))
		p.run(10, 300)
		for range 5 {
			p.stand(0.25)
			for range 50 {
				p.run(tick, 300)
				require.False(t, p.flow.missing)
			}
		}
	}
}

// Whether the process stood still follows from the requests that were due, and from those in flight.
func TestWhatAStandstillIs(t *testing.T) {
	for _, c := range []struct {
		why        string
		rate, want float64
		r          Reading
	}{
		{"a request is in flight", 200, 0.3, Reading{Dt: 0.3, InFlight: 1}},
		{"those in flight ended late", 200, 0.3, Reading{Dt: 0.3, Answered: 4, Latency: 1}},
		{"those in flight ended at once, so it was idle", 200, 0, Reading{Dt: 0.3, Answered: 4, Latency: 0.08}},
		{"none was in flight", 200, 0, Reading{Dt: 0.3}},
		{"too few were due", 10, 0, Reading{Dt: 0.3, InFlight: 1}},
		{"too short", 2000, 0, Reading{Dt: 0.05, InFlight: 1}},
		{"a quota did it", 200, 0, Reading{Dt: 0.12, InFlight: 1, Pause: 0.08}},
	} {
		p := newPlant(17, Options{}, 0, constant(0.02))
		p.run(5, c.rate)
		require.InDelta(t, c.want, p.stood(&c.r), 1e-9, c.why)
	}
}

// While the CPU is full although much is refused, a standstill is no reason to let more in either.
func TestAStandstillGivesNoCreditWhileTheCPUIsFull(t *testing.T) {
	l, r := New(Default()), Reading{Running: 1, Mix: 1}
	l.history.pass, l.history.rate, l.cpu.stretch = 100, 100, 0.1
	before := l.cpu.bound(l, &r, 0.02)
	l.credit.time = 0.2
	require.Less(t, l.cpu.bound(l, &r, 0.02), before+8)
	l.cpu.stretch = 1
	require.Greater(t, l.cpu.bound(l, &r, 0.02), before+15)
}

// Under work that does not yield, the steps of the law wait for a processor, too. A limit that rises because they are late makes them
// wait for longer.
func TestLateStepsUnderAFullCPUAreNoStandstill(t *testing.T) {
	for _, usage := range []float64{0.7, 1} {
		p := newPlant(15, Options{Threshold: 0.8}, 0, constant(0.02))
		p.r.CPU, p.r.Smoothed, p.r.CPUKnown = 0.7, 0.7, true
		p.run(10, 200)
		p.r.CPU = usage
		p.run(0.1, 200)
		before := p.v.Limit
		r := p.r
		r.Dt, r.InFlight, r.Admitted, r.Left, r.Ended, r.Answered, r.Latency = 0.15, 10, 30, 30, 30, 30, 3
		if after := p.Step(&r).Limit; usage < 1 {
			require.Greater(t, after, before+15)
		} else {
			require.Less(t, after, before+5)
		}
	}
}

// The next sample of the CPU confirms a standstill, or shows that the process was busy.
func TestASampleOfTheCPUConfirmsAStandstill(t *testing.T) {
	p := Default()
	late := Reading{Dt: 0.3, InFlight: 10, CPU: 0.7, CPUKnown: true}
	sample := func(usage float64) *Reading {
		return &Reading{Dt: tick, InFlight: 10, CPU: usage, CPUKnown: true, CPUFresh: true}
	}
	var c credit
	c.step(&p, &late, 0)
	require.Equal(t, 0.3, c.time)
	c.step(&p, sample(1), 0)
	require.Zero(t, c.time, "it was busy")

	c = credit{}
	c.step(&p, &late, 0)
	c.step(&p, sample(0.5), 0)
	c.step(&p, sample(1), 0)
	require.InDelta(t, 0.29, c.time, 0.01, "it is busy with what waited for the standstill")
}

// A process that stood still for half of a sample used all of the CPU that it could.
func TestAStandstillIsNoSpareCPU(t *testing.T) {
	c := cpu{stood: 0.125, passed: 0.25}
	require.InDelta(t, 0.9, c.used(&Reading{CPU: 0.45}), 1e-9)
	require.InDelta(t, 0.45, c.used(&Reading{CPU: 0.45}), 1e-9, "the next sample has no standstill")
	c.stood, c.passed = 0.25, 0.25
	require.InDelta(t, 1, c.used(&Reading{CPU: 0.45}), 1e-9)
}

// A service with few calls that slows is refused some before there is proof. A moment in which less is offered must not make the
// law forget the rate of before, with which the proof would begin anew.
func TestARateIsRememberedThroughAPause(t *testing.T) {
	const seeds, rate = 40, 16
	good := 0.0
	for seed := range uint64(seeds) {
		p := newPlant(seed, Options{}, 1000, constant(0.146))
		p.run(15, rate)
		p.reset()
		p.takes = constant(0.847)
		p.run(20, rate)
		good += p.good / (20 * rate) / seeds
	}
	require.Greater(t, good, 0.835)
}

// A quota lets the process run for 40 of 100 ms. Below its capacity, requests that come in the pause find room, although they
// are more than Little's law allows.
func TestRequestsWaitForAQuota(t *testing.T) {
	var refused, admitted float64
	for seed := range uint64(20) {
		p := newPlant(seed, Options{}, 1, constant(0.0024)) // 167/s in 40 % of the time
		p.run(5, 75)
		p.reset()
		p.r.CPU, p.r.Smoothed, p.r.Pause, p.r.Running, p.r.CPUs = 1, 0.7, 0.06, 0.4, 0.4
		for range 60 {
			for _, pause := range []float64{0.06, 0.04, 0.02, 0, 0} {
				p.takes = constant(pause + 0.0024)
				p.run(tick, 140)
			}
		}
		refused, admitted = refused+p.refused, admitted+p.admitted
	}
	t.Logf("refused %.4f", refused/(refused+admitted))
	require.Less(t, refused/(refused+admitted), 0.004)
}
