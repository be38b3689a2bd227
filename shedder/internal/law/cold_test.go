package law

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A pool that starts straight into an overload is protected, however little it exceeds the capacity: the latencies of its first
// seconds may be those of a queue.
func TestAPoolThatStartsInAnOverloadIsProtected(t *testing.T) {
	const seconds, seeds = 30, 10
	for _, c := range []struct {
		slots      int
		mean, load float64
		takes      func(float64) draw
		least      float64 // share of the capacity that is answered in time
	}{
		{8, 0.019, 1.1, exponential, 0.95}, // 0.46 if the first samples count, whatever follows
		{12, 0.015, 1.1, bimodal, 0.82},    // 0.76
		{44, 0.030, 1.1, half, 0.95},       // 0.55
		{11, 0.028, 1.1, constant, 0.95},   // 0.42
		{9, 0.053, 1.1, exponential, 0.95}, // 0.86
		{62, 0.317, 8, constant, 0.95},     // 0.23 if the gaps between the answers count as silences
		{62, 0.317, 4, constant, 0.95},     // 0.31
	} {
		capacity, good := float64(c.slots)/c.mean, 0.0
		for seed := range uint64(seeds) {
			p := newPlant(seed, Options{}, c.slots, c.takes(c.mean))
			p.useful = max(0.5, 20*c.mean)
			p.run(seconds, c.load*capacity)
			good += p.timely / (seconds * capacity) / seeds
		}
		require.Greater(t, good, c.least, "%d slots of %v s at %v times the capacity", c.slots, c.mean, c.load)
	}
}
