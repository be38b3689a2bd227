package law

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Calls that all take equally long come back in batches under a limit, one for each latency. The pause between two batches is no stop, and
// a dependency that has answered late is not down when answers are missing again. Without both, 99 % of the calls are refused in the end.
func TestEqualCallsThatComeBackInBatchesAreSlow(t *testing.T) {
	for _, c := range []struct{ rate, before, slow, slower float64 }{{400, 0.02, 1.2, 3}, {200, 0.03, 1.8, 4.5}} {
		var first, then float64
		const seeds = 6
		for seed := range uint64(seeds) {
			p := newPlant(seed, Options{}, 0, constant(c.before))
			p.run(20, c.rate)
			p.takes = constant(c.slow)
			p.reset()
			p.run(15, c.rate)
			first += p.share() / seeds
			p.takes = constant(c.slower)
			p.reset()
			p.run(60, c.rate)
			then += p.share() / seeds
		}
		t.Logf("%v to %v to %v s: refused %.3f, then %.3f", c.before, c.slow, c.slower, first, then)
		require.Less(t, first, 0.17)
		require.Less(t, then, 0.01)
	}
}

// A silence in which a request fails is no pause between batches.
func TestFailuresInASilenceAreAStop(t *testing.T) {
	l := New(Default())
	l.flow.held = 200
	l.history.close(&bucket{left: 20, ended: 20, answered: 20, latency: 20}, ignore)
	l.history.n = 10
	for range 20 {
		l.history.close(&bucket{}, ignore)
	}
	require.False(t, l.flow.stopped(l), "the last answers took a second")
	l.history.close(&bucket{left: 1, ended: 1}, ignore)
	require.True(t, l.flow.stopped(l), "one failed")
}

func TestTheMedianIsTheMiddleOfTheQueue(t *testing.T) {
	var h history
	require.Zero(t, h.median())
	require.Zero(t, h.latest(10))
	for range 20 {
		h.close(&bucket{admitted: 5, left: 4, ended: 4, answered: 4, latency: 8}, ignore)
		h.n++
	}
	require.InDelta(t, 2*span, h.median(), span, "20 in flight, of which 5 came in each bucket")
	require.InDelta(t, 2, h.latest(10), 1e-9)
	h.close(&bucket{left: 20}, ignore)
	h.n = 0
	require.Zero(t, h.median())
	h.close(&bucket{left: 12, ended: 12}, ignore)
	require.InDelta(t, 2, h.latest(10), 1e-9, "failures say nothing")
}
