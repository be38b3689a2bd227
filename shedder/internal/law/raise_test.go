package law

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A pool that was taken for slow by mistake is known by its queue, and the latency of before counts again, after several mistakes
// as after one. Otherwise each mistake allows a longer queue, which looks like the next one.
func TestALatencyIsTakenBackIfAQueueGrows(t *testing.T) {
	for seed := range uint64(8) {
		p := newPlant(seed, Options{}, 8, exponential(0.025))
		p.run(30, 160)
		before := p.latency.typical
		p.flow.raise(&p.latency, 5*before)
		p.flow.raise(&p.latency, 20*before)
		p.run(60, 1.2*320)
		require.Less(t, p.latency.typical, 2*before, "seed %d", seed)
		p.reset()
		p.run(20, 1.2*320)
		require.Less(t, p.most, 60.0, "seed %d: in flight", seed)
	}
}

// A latency that rose on proof stays if the service is slow: a sample in which some calls took much less than others confirms it,
// and a queue that grows much later does not take it back.
func TestALatencyIsConfirmed(t *testing.T) {
	for seed := range uint64(8) {
		p := newPlant(seed, Options{}, 0, exponential(0.025))
		p.run(30, 300)
		p.takes = exponential(0.5)
		p.run(60, 300)
		require.InDelta(t, 0.5, p.latency.typical, 0.15, "seed %d", seed)
		require.Zero(t, p.flow.before.typical, "seed %d: the proof has been confirmed", seed)
		require.Less(t, p.share(), 0.01, "seed %d", seed)
	}
}
