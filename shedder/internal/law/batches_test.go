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

// A pool that comes back from a stop is slow while it is cold, and answers in batches if its calls are alike. It is no slow service, and the
// seconds of the stop are no part of a latency. Without the first, the pool of 26 keeps 0.03; without the second, that of 8 keeps 0.05.
func TestAPoolThatComesBackColdInBatchesIsNotSlow(t *testing.T) {
	for _, c := range []struct {
		takes       func(float64) draw
		slots       int
		hold, times float64
		keeps       float64
	}{{constant, 26, 0.02, 10, 0.9}, {alike, 8, 0.08, 23, 0.4}} {
		var kept float64
		const seeds = 6
		for seed := range uint64(seeds) {
			capacity := float64(c.slots) / c.hold
			p := newPlant(seed, Options{}, c.slots, c.takes(c.hold))
			p.useful = 1.5
			p.run(20, capacity/2)
			p.run(5, 3*capacity)
			p.reset()
			p.stall(3, 3*capacity)
			p.takes = c.takes(c.times * c.hold)
			p.run(3.4, 3*capacity)
			p.takes = c.takes(c.hold)
			p.run(15, 3*capacity)
			kept += p.timely / capacity / 15 / seeds
		}
		t.Logf("%d slots: kept %.2f", c.slots, kept)
		require.Greater(t, kept, c.keeps)
	}
}

// What late answers have shown counts again only as far as the last answers took so long. A pool that stops again and again just below its
// capacity keeps 0.26 without that.
func TestABacklogOfAStopIsNoLateAnswer(t *testing.T) {
	var kept float64
	const seeds, rate = 6, 0.85 * 26 / 0.05
	for seed := range uint64(seeds) {
		p := newPlant(seed, Options{}, 26, alike(0.05))
		p.useful = 1.5
		p.run(20, rate)
		p.reset()
		for range 4 {
			p.stall(5, rate)
			p.run(3, rate)
		}
		p.run(5, rate)
		kept += p.timely / (26 / 0.05) / 17 / seeds
	}
	t.Logf("kept %.2f", kept)
	require.Greater(t, kept, 0.43)
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

// Five requests come in each bucket and four are answered, so half of the 20 in flight have been there for 0.1 s.
func TestRequestsAreOverdueAfterTheLatencyOfTheLastAnswers(t *testing.T) {
	var h history
	require.False(t, h.overdue(10), "nothing has happened")
	for range 20 {
		h.close(&bucket{admitted: 5, left: 4, ended: 4, answered: 4, latency: 4}, ignore)
		h.n++
	}
	require.InDelta(t, 1, h.latest(10), 1e-9)
	require.False(t, h.overdue(10), "the last answers took a second")
	h.close(&bucket{left: 12, ended: 12}, ignore)
	require.InDelta(t, 1, h.latest(10), 1e-9, "failures say nothing")
	h.n = 8
	for range 16 {
		h.close(&bucket{inside: 1}, ignore)
	}
	require.False(t, h.overdue(10), "0.9 s later")
	for range 9 {
		h.close(&bucket{inside: 1}, ignore)
	}
	require.True(t, h.overdue(10), "1.3 s later")
	h.n = 0
	require.False(t, h.overdue(10), "nothing is in flight")
}
