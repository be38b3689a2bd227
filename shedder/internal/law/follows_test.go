package law

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A database stops for a moment, just below the capacity. The answers that come late look like those of a slow service, but they
// wait in the queue that the stop has left, which would never end.
func TestTheQueueThatAStopLeavesIsRefused(t *testing.T) {
	for _, c := range []struct {
		takes       draw
		slots       int
		stop, least float64
	}{
		{constant(0.025), 2, 0.7, 0.80}, // 0.69 if late answers always mean slow
		{constant(0.025), 4, 0.7, 0.77}, // 0.74 then
	} {
		const seeds, seconds = 10, 20
		good := 0.0
		for seed := range uint64(seeds) {
			p := newPlant(seed, Options{}, c.slots, c.takes)
			rate := 40 * float64(c.slots)
			p.useful = 0.5
			p.run(20, 0.7*rate)
			p.run(2, 0.95*rate)
			p.stall(c.stop, 0.95*rate)
			p.reset()
			p.run(seconds, 0.95*rate)
			good += p.timely / (0.95 * rate * seconds) / seeds
		}
		t.Logf("%d slots, %v s: %.3f", c.slots, c.stop, good)
		require.Greater(t, good, c.least, "%d slots, %v s", c.slots, c.stop)
	}
}

// A stop under a tight limit takes most answers of a second. Those of the rest come as fast as before, so the limit has cost none. If the
// stop counts in the rate by which it is judged, it is taken for slowness in nine of ten runs.
func TestAShortStopUnderATightLimitIsNotSlow(t *testing.T) {
	for seed := range uint64(20) {
		p := newPlant(seed, Options{}, 2, half(0.035)) // 57/s
		p.run(15, 40)
		p.run(5, 86)
		p.stall(0.9, 86)
		p.run(2, 86)
		require.Less(t, p.latency.typical, 0.15, "seed %d", seed)
	}
}

func TestLatenciesThatFollowTheNumberInFlight(t *testing.T) {
	for seed := range uint64(10) {
		full := newPlant(seed, Options{CPUOnly: true}, 8, half(0.025))
		full.run(10, 300)
		full.stall(0.5, 300)
		full.run(20, 315)
		require.Greater(t, full.history.follows(15), 2*Default().Proof, "seed %d: a queue", seed)
		slow := newPlant(seed, Options{CPUOnly: true}, 0, constant(0.5))
		slow.run(10, 200)
		require.Less(t, slow.history.follows(5), 0.0, "seed %d: a slow service", seed)
		uneven := newPlant(seed, Options{CPUOnly: true}, 0, exponential(0.5))
		uneven.run(10, 200)
		require.LessOrEqual(t, uneven.history.follows(5), 0.0, "seed %d: an uneven one", seed)
	}
	for seed := range uint64(10) { // ever slower, so ever more are in flight
		p := newPlant(seed, Options{CPUOnly: true}, 0, nil)
		p.takes = func(*rand.Rand) float64 { return 0.1 + p.now/20 }
		p.run(20, 200)
		require.Less(t, p.history.follows(10), Default().Proof, "seed %d: one that becomes slower", seed)
	}
	for name, takes := range map[string]func(now float64) float64{
		"to and fro":      func(now float64) float64 { return 0.75 * math.Pow(2.5, math.Sin(now*2*math.Pi/5)) },
		"one of two ways": func(now float64) float64 { return 0.4 + 0.2*math.Mod(math.Floor(now/10), 2) },
	} {
		for seed := range uint64(10) {
			p := newPlant(seed, Options{CPUOnly: true}, 0, nil)
			p.takes = func(*rand.Rand) float64 { return takes(p.now) }
			p.run(20, 300)
			for range 200 {
				p.run(0.1, 300)
				require.Less(t, p.history.follows(10), 2*Default().Proof, "seed %d: %s", seed, name)
			}
		}
	}
	var empty history
	require.Zero(t, empty.follows(5))
}
