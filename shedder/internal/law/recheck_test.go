package law

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A service starts straight into five times its capacity, and answers slowly at first, as if it got little of the CPU.
func slowStart(seed uint64, slots int, takes draw, first, rate float64) *plant {
	p := newPlant(seed, Options{}, slots, constant(first))
	p.run(1.5, 5*rate)
	p.takes = takes
	return p
}

func TestALatencyLearntInABadStartIsForgottenUnderLoad(t *testing.T) {
	for name, takes := range map[string]draw{"constant": constant(0.02), "exponential": exponential(0.02), "lognormal": lognormal(0.02)} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(10) {
				p := slowStart(seed, 4, takes, 0.3, 200)
				p.run(15, 1000)
				p.reset()
				p.run(10, 1000)
				require.Less(t, p.inside()/200, 0.2, "seed %d: seconds that requests take; the work is 20 ms", seed)
				require.Greater(t, p.good/2000, 0.93, "seed %d", seed)
			}
		})
	}
}

// The CPU is unknown, as it is in front of other servers. A moment in which goroutines wait must not leave a bound in force that
// nothing raises or lowers.
func TestAWaitForTheCPUDoesNotHoldForEver(t *testing.T) {
	for seed := range uint64(10) {
		p := newPlant(seed, Options{}, 4, constant(0.3))
		p.r.CPU, p.r.Smoothed, p.r.CPUKnown = 0, 0, false
		p.r.Wait = 0.05
		p.run(1.5, 1000)
		p.r.Wait, p.takes = 0, constant(0.02)
		p.run(15, 1000)
		p.reset()
		p.run(10, 1000)
		require.Less(t, p.inside()/200, 0.2, "seed %d: seconds that requests take; the work is 20 ms", seed)
		require.Greater(t, p.good/2000, 0.93, "seed %d", seed)
		require.Zero(t, p.reasons[CPU], "seed %d", seed)
	}
}

// A process that knows what the one before it has learnt has a limit from the first request on.
func TestAResumedProcessIsReadyAtOnce(t *testing.T) {
	for name, takes := range map[string]draw{"constant": constant(0.02), "exponential": exponential(0.02)} {
		for seed := range uint64(10) {
			p := newPlant(seed, Options{}, 4, takes)
			p.run(5, 150)
			rate, typical := p.Rate(), p.Latency().Seconds()
			p = newPlant(seed+100, Options{}, 4, takes)
			p.Resume(rate, typical)
			p.v = p.Step(&Reading{Running: 1})
			p.run(1, 2000)
			require.Less(t, p.most, 60.0, "%s, seed %d: in flight", name, seed)
			require.Greater(t, p.good/200, 0.85, "%s, seed %d", name, seed)
		}
	}
}

// What was learnt may be wrong by now.
func TestAResumedProcessLearnsAgain(t *testing.T) {
	for seed := range uint64(10) {
		slower := newPlant(seed, Options{}, 0, exponential(0.5)) // a tenth of its speed, and not full
		slower.Resume(200, 0.05)
		slower.run(20, 200)
		slower.reset()
		slower.run(10, 200)
		require.Less(t, slower.share(), 0.01, "seed %d: refused by a slower service", seed)

		faster := newPlant(seed, Options{}, 4, exponential(0.02))
		faster.Resume(20, 0.2)
		faster.run(10, 1000)
		faster.reset()
		faster.run(10, 1000)
		require.Less(t, faster.inside()/200, 0.2, "seed %d: seconds that requests take; the work is 20 ms", seed)
		require.Greater(t, faster.good/2000, 0.93, "seed %d", seed)
	}
}

// mixed is a service that answers most requests after long, and the others at once.
func mixed(short, long, share float64) draw {
	return func(r *rand.Rand) float64 {
		if r.Float64() < share {
			return long
		}
		return short
	}
}

// A queue was seen where there is none, and the guess of the latency is far too short. The service answers in proportion to the
// limit, which a full one does not.
func TestAFalseQueueIsFoundOut(t *testing.T) {
	for name, takes := range map[string]draw{
		"30 % of 3 s": mixed(0.02, 3, 0.3), "80 % of 3 s": mixed(0.02, 3, 0.8), "95 % of 3 s": mixed(0.02, 3, 0.95),
		"80 % of 1 s": mixed(0.1, 1, 0.8), "95 % of 1 s": mixed(0.1, 1, 0.95), "exponential": exponential(1),
	} {
		for seed := range uint64(10) {
			for _, at := range []float64{0.5, 1, 2} {
				p := newPlant(seed, Options{}, 0, takes)
				p.run(at, 100)
				if p.latency.typical > 0 {
					continue
				}
				p.flow.full, p.flow.wide, p.flow.again.due = true, 0, true
				p.latency.guess()
				p.run(90, 100)
				p.reset()
				p.run(10, 100)
				require.Less(t, p.share(), 0.01, "%s, seed %d, a queue seen after %g s: refused", name, seed, at)
			}
		}
	}
}

// A pool that stops while its latency is measured again is not taken for a slow one that answers after the stop: a measurement that
// waits for such answers includes the stop (1.7 s, and 1785 requests in flight). It may still learn too long a latency.
func TestAStopWhileALatencyIsMeasuredAgain(t *testing.T) {
	for seed := range uint64(12) {
		p := newPlant(seed, Options{}, 8, exponential(0.025))
		for range 400 {
			if p.flow.again.limit > 0 {
				break
			}
			p.run(3*tick, 960)
		}
		require.Positive(t, p.flow.again.limit, "seed %d: a measurement is under way", seed)
		p.stall(6, 960)
		p.reset()
		p.run(10, 960)
		require.Less(t, p.Latency(), 300*time.Millisecond, "seed %d", seed)
		require.Less(t, p.most, 200.0, "seed %d", seed)
	}
}

// A database needs half a second for its first connections, so the first answers have all waited. The service is emptied once, so the
// latency is known as soon as the queue has drained. Halving the limit again and again took 7 s. A MinLimit keeps some in flight.
func TestAQueueOfTheStartIsEmptiedAtOnce(t *testing.T) {
	for _, least := range []float64{0, 8} {
		for seed := range uint64(10) {
			p := newPlant(seed, Options{MinLimit: least}, 8, constant(0.025))
			p.stall(0.5, 640)
			p.run(4.5, 640)
			require.Less(t, p.Latency(), 45*time.Millisecond, "MinLimit %v, seed %d", least, seed)
			p.reset()
			p.run(10, 640)
			require.Less(t, p.inside()/320, 0.1, "MinLimit %v, seed %d: seconds that requests take; the work is 25 ms", least, seed)
			require.Greater(t, p.good/3200, 0.99, "MinLimit %v, seed %d", least, seed)
		}
	}
}

// Long polls stay in flight, so the service never becomes empty.
func TestAMeasurementAmongLongPollsEnds(t *testing.T) {
	for seed := range uint64(10) {
		p := newPlant(seed, Options{}, 0, constant(1e6))
		p.run(0.2, 200)
		p.takes = constant(0.05)
		p.run(0.3, 200)
		p.flow.full = true
		p.flow.guess(p.Law)
		p.run(20, 200)
		p.reset()
		p.run(10, 200)
		require.Less(t, p.share(), 0.01, "seed %d: refused", seed)
	}
}

// More may come than the service answers, although its rate was measured: a few expensive requests change it. They wait then, and their
// latency must not count.
func TestAMeasurementThatLetsTooManyInIsNone(t *testing.T) {
	for seed := range uint64(10) {
		p := newPlant(seed, Options{}, 40, constant(0.2))
		p.run(0.3, 200)
		p.flow.full = true
		p.flow.guess(p.Law)
		p.flow.again = recheck{due: true, limit: 2, rate: 400, took: 0.4}
		p.run(5, 1000)
		require.False(t, p.latency.guessed, "seed %d: measured", seed)
		require.Less(t, p.Latency(), 260*time.Millisecond, "seed %d", seed)
	}
}
