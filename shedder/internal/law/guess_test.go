package law

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// connects is a service whose first calls, one for each slot, take half a second longer than the others.
func connects(slots int, takes draw) draw {
	return func(r *rand.Rand) float64 {
		if slots--; slots >= 0 {
			return 0.5 + takes(r)
		}
		return takes(r)
	}
}

// A database needs half a second for its first connections, so the first answers have all waited. A latency that was learnt from
// them is a guess: otherwise the limit is that of the queue, and a pool just above its capacity is never protected.
func TestAPoolThatBeginsWithAQueueIsProtected(t *testing.T) {
	for _, c := range []struct{ load, least float64 }{
		{1.2, 0.63}, // 0.09 if the latency of the first answers counts; 0.62 if a queue is not looked for since the first answer
		{1.5, 0.80}, // 0.75 then
		{3, 0.72},   // 0.64 then
	} {
		const seeds, seconds = 10, 30
		good := 0.0
		for seed := range uint64(seeds) {
			p := newPlant(seed, Options{}, 8, connects(8, constant(0.025))) // 320/s
			p.useful = 0.25
			p.run(seconds, c.load*320)
			good += p.timely / (320 * seconds) / seeds
		}
		t.Logf("%v times the capacity: %.3f", c.load, good)
		require.Greater(t, good, c.least, "%v times the capacity", c.load)
	}
}

// The same while a CPU quota is used up: refusals need it, and the requests wait for the database. A guess is measured until it stays,
// although the bound of the CPU is in force. Otherwise it stays at more than five times the true latency.
func TestAGuessIsMeasuredWhileTheCPUIsShort(t *testing.T) {
	const seeds = 10
	found := 0
	for seed := range uint64(seeds) {
		p := newPlant(seed, Options{}, 8, constant(0.02)) // 400/s
		p.r.CPU, p.r.Smoothed, p.r.Pause, p.r.Running = 1, 1, 0.06, 0.4
		p.stall(0.35, 1200)
		p.run(15, 1200)
		p.reset()
		p.run(10, 1200)
		require.Greater(t, p.good/4000, 0.99, "seed %d", seed)
		require.Less(t, p.latency.typical, 0.12, "seed %d", seed)
		if p.latency.typical < 0.03 {
			found++
		}
	}
	require.GreaterOrEqual(t, found, seeds*8/10, "latencies found")
}

// A guess that was too short is still measured after a moment with little load, in which no sample could replace it: calls of one
// length may all have waited. Otherwise a healthy service is refused for as long as the load stays.
func TestALightLoadDoesNotKeepAGuess(t *testing.T) {
	for seed := range uint64(10) {
		p := newPlant(seed, Options{}, 0, constant(0.3))
		p.run(0.5, 100)
		p.latency.least = 0.12
		p.flow.full = true
		p.flow.guess(p.Law)
		p.run(7, 12)
		p.run(60, 100)
		p.reset()
		p.run(10, 100)
		require.Less(t, p.share(), 0.01, "seed %d: refused", seed)
	}
}

// falseQueue is a healthy service in which a queue was seen by mistake at the start.
func falseQueue(seed uint64, takes draw, rate float64) *plant {
	p := newPlant(seed, Options{}, 0, takes)
	p.run(0.3, rate)
	p.flow.full = true
	p.flow.guess(p.Law)
	return p
}

// A guess is measured however few answers come, since a limit that is too tight leaves few. What is then measured counts. Otherwise the
// service is refused for ever.
func TestAGuessOfAHealthyServiceIsReplaced(t *testing.T) {
	for _, rate := range []float64{20, 100} {
		for name, takes := range map[string]draw{"exponential": exponential(1), "lognormal": lognormal(1)} {
			for seed := range uint64(22) {
				p := falseQueue(seed, takes, rate)
				p.run(75, rate)
				p.reset()
				p.run(10, rate)
				require.Less(t, p.share(), 0.05, "%s, %v/s, seed %d: refused", name, rate, seed)
			}
		}
	}
	for seed := range uint64(6) {
		p := falseQueue(seed, lognormal(1), 20)
		for range 6 {
			p.run(3, 20)
			p.run(7, 0)
		}
		p.run(40, 20)
		p.reset()
		p.run(10, 20)
		require.Less(t, p.share(), 0.05, "seed %d: refused after a load that goes on and off", seed)
	}
}

// A measurement ends although it has lasted for longer than the history, which leaves out silence.
func TestAMeasurementEnds(t *testing.T) {
	p := falseQueue(1, exponential(1), 150)
	p.run(0.3, 150)
	p.flow.again = recheck{due: true, limit: 4, rate: 60}
	p.run(2, 150)
	require.Positive(t, p.flow.again.limit)
	p.flow.settled = 100
	p.run(30, 150)
	p.reset()
	p.run(10, 150)
	require.Less(t, p.share(), 0.01, "refused")
}

// A pool that answers two requests per second is hit by a step before three samples are taken. What the next one measures includes a queue.
func TestAnEarlyQueueIsNoLatency(t *testing.T) {
	const seeds = 40
	long := 0
	for seed := range uint64(seeds) {
		p := newPlant(seed, Options{}, 2, constant(1))
		p.run(15, 1)
		p.run(20, 4)
		if p.latency.typical > 1.8 {
			long++
		}
	}
	t.Logf("%d of %d take a queue for a latency", long, seeds)
	require.LessOrEqual(t, long, 6, "of 40 take a queue for a latency; 9 if the first three samples are taken as they are")
}

// A pool that answers two requests per second has not answered a hundred for as long as the history reaches. Its measurement ends with
// fewer, since it is let in less than it can answer.
func TestAMeasurementOfFewAnswersEnds(t *testing.T) {
	for _, load := range []float64{2, 5} {
		for seed := range uint64(6) {
			p := newPlant(seed, Options{}, 2, constant(1))
			p.run(150, 2*load)
			p.reset()
			p.run(50, 2*load)
			require.Zero(t, p.flow.again.limit, "%v times the capacity, seed %d: still measured", load, seed)
			require.Greater(t, p.good/100, 0.9, "%v times the capacity, seed %d", load, seed)
		}
	}
}

// At a cold start the CPU is so short that the least limit holds from the first moment: no queue grows, but all that is known is the latency
// of those that came before. It is measured. Otherwise it bounds the requests in flight for many seconds.
func TestAGuessIsMeasuredThoughTheCPUKeptTheQueueFromGrowing(t *testing.T) {
	const seeds = 10
	waited := 0.0
	for seed := range uint64(seeds) {
		p := newPlant(seed, Options{Threshold: 0.8, CoolDown: 1}, 8, constant(0.02)) // 400/s
		p.r.CPU, p.r.Smoothed, p.r.CPUKnown, p.r.CPUFresh, p.r.Wait, p.r.WaitFresh = 1, 1, true, true, 0.006, true
		p.stall(0.35, 1200)
		p.r.CPU = 0.95
		p.run(3, 1200)
		p.reset()
		p.run(5, 1200)
		require.Greater(t, p.good/2000, 0.95, "seed %d", seed)
		waited += p.inside() / 400 / seeds
	}
	t.Logf("seconds that requests wait: %.3f", waited)
	require.Less(t, waited, 0.06) // 0.24 otherwise
}

// For half of the first second of a cold start the CPU was full, and all answers waited for it. Some took less than others, so no queue
// shows, but what is learnt is only a guess.
func TestALatencyThatWaitedForTheCPUIsAGuess(t *testing.T) {
	for _, full := range []float64{0.4, 0.6} {
		p := newPlant(1, Options{Threshold: 0.8, CoolDown: 1}, 0, exponential(0.05))
		p.run(1-full, 200)
		p.r.CPU, p.r.Smoothed, p.r.CPUKnown = 1, 1, true
		p.run(full+2*span, 200)
		require.Positive(t, p.latency.typical)
		require.Equal(t, full > 0.5, p.latency.guessed)
	}
}
