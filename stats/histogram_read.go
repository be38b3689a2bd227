package stats

import (
	"math"
	"time"
)

// Quantile returns the duration that the fraction q of the samples in the window does not exceed, by nearest rank: 0.99
// for p99, 0 for the least, 1 for the greatest. It is within 1.6 % of the true value, and 0 without samples. A q
// outside [0, 1] counts as the nearer end, and NaN as 0.
//
// Reading takes some microseconds, far more than Record. Samples recorded meanwhile may count or not. It does not
// allocate.
func (h *Histogram) Quantile(now time.Time, q float64) time.Duration {
	var counts [maxCells]int64
	return h.quantile(&counts, h.collect(now, &counts), q)
}

// Quantiles returns one Quantile for each of qs, in the same order, all from the same samples. Reading several at once
// costs little more than reading one.
func (h *Histogram) Quantiles(now time.Time, qs ...float64) []time.Duration {
	var counts [maxCells]int64
	total := h.collect(now, &counts)
	ds := make([]time.Duration, len(qs))
	for i, q := range qs {
		ds[i] = h.quantile(&counts, total, q)
	}
	return ds
}

// Count returns how many samples the window holds.
func (h *Histogram) Count(now time.Time) int64 {
	var counts [maxCells]int64
	return h.collect(now, &counts)
}

// collect adds up the buckets of the window in counts and returns the number of samples.
func (h *Histogram) collect(now time.Time, counts *[maxCells]int64) (total int64) {
	slot := h.at(now)
	for range h.buckets {
		lap := h.lap(slot)
		for i, cells := 0, h.bucket(slot); i < len(cells) && i < maxCells; i++ {
			if word := cells[i].Load(); word>>countBits == lap {
				n := int64(word & countMask)
				counts[i] += n
				total += n
			}
		}
		slot--
	}
	return total
}

func (h *Histogram) quantile(counts *[maxCells]int64, total int64, q float64) time.Duration {
	if total == 0 {
		return 0
	}
	if !(q > 0) { // NaN too
		q = 0
	}
	// 0.07 × 100 is a little more than 7 in floating point: without the correction its rank would be 8.
	rank := int64(math.Ceil(min(q, 1) * float64(total) * (1 - 1e-12)))
	rank = max(1, min(rank, total))
	cell := 0
	for seen := counts[0]; seen < rank; seen += counts[cell] {
		cell++
	}
	return min(middle(cell), h.highest)
}
