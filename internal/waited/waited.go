// Package waited records durations into cumulative exponential buckets.
package waited

import (
	"math"
	"slices"
	"time"

	"github.com/spillway-go/spillway/stats"
)

const (
	// scale gives every doubling 4 buckets, so that a quantile is at most 9 % off.
	scale     = 2
	perDouble = 1 << scale
	// The first bucket ends at a microsecond and the last at 4096 seconds; shorter and longer durations count there.
	lowest  = -20 * perDouble
	highest = 12 * perDouble
)

// A Recorder counts durations. The zero Recorder is empty, and takes its memory of one kilobyte with the first duration.
// Its owner guards it with a lock.
type Recorder struct {
	counts *[highest - lowest + 1]uint64
	count  uint64
	zero   uint64
	sum    float64
}

// Record counts d. A negative d counts as 0.
func (r *Recorder) Record(d time.Duration) {
	if r.counts == nil {
		r.counts = new([highest - lowest + 1]uint64)
	}
	seconds := max(d, 0).Seconds()
	r.count++
	r.sum += seconds
	if seconds == 0 {
		r.zero++
		return
	}
	r.counts[min(max(bucket(seconds), lowest), highest)-lowest]++
}

// bucket returns the least i with seconds <= 2^(i / perDouble).
func bucket(seconds float64) int {
	fraction, exponent := math.Frexp(seconds) // fraction is in [1/2, 1)
	i := perDouble * (exponent - 1)
	for fraction > math.Exp2(float64(i-perDouble*exponent)/perDouble) {
		i++
	}
	return i
}

// Value returns the counts so far.
func (r *Recorder) Value() stats.Distribution {
	if r.counts == nil {
		return stats.Distribution{}
	}
	first, last := 0, len(r.counts)
	for first < last && r.counts[first] == 0 {
		first++
	}
	for last > first && r.counts[last-1] == 0 {
		last--
	}
	if first == last {
		first, last = -lowest, -lowest
	}
	return stats.Distribution{
		Count: r.count, Sum: r.sum, Scale: scale, Zero: r.zero, First: lowest + first, Counts: slices.Clone(r.counts[first:last]),
	}
}
