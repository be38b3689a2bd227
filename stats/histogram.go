package stats

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// subBits gives every power of two 32 cells. The middle of a cell is then at most 1/64 away from any value in it.
	subBits  = 5
	subCells = 1 << subBits
	// maxCells is what the whole range of int64 takes.
	maxCells = (64-1-subBits)*subCells + subCells

	// countBits is the part of a cell's word that counts; the other 36 bits are its lap.
	countBits = 28
	countMask = 1<<countBits - 1
	lapMask   = 1<<(64-countBits) - 1
)

// A Histogram estimates quantiles of the durations recorded during the last span of time, within 1.6 % of the true value.
// It is log-linear, as HdrHistogram is: every power of two is cut into 32 cells of equal width, so that the error is
// relative, and durations under 64 ns are exact. It rolls like a Window: in buckets that are numbered from the first
// instant it is asked about, with the time as an argument.
//
// Record costs one compare-and-swap, does not lock and does not allocate. One cell of one bucket counts up to 268
// million samples and then stops. Methods may be called concurrently; a sample late for its bucket is dropped, never
// counted in a newer one.
//
// Memory is fixed: 256 bytes per bucket and power of two up to Highest, with the number of buckets rounded up to a
// power of two: about 80 kB with the defaults.
type Histogram struct {
	slots
	buckets int
	highest time.Duration
	laps    int // shift from a slot to its lap, the number of turns of the ring
	stride  int // cells per bucket
	cells   []atomic.Uint64
}

// HistogramOptions say how far back a Histogram looks. The zero HistogramOptions are the defaults.
type HistogramOptions struct {
	// Span is the length of time that quantiles look back on. If Span is 0, it is 10 seconds. It must be a multiple of
	// Buckets nanoseconds.
	Span time.Duration
	// Buckets is how many parts Span has, the one being filled included: the oldest part leaves at once when a new one
	// begins. If Buckets is 0, it is 8. A power of two wastes no memory. At most 65536.
	Buckets int
	// Highest is the longest duration with a cell of its own: a longer one counts as Highest. If Highest is 0, it is one hour.
	Highest time.Duration
}

// NewHistogram returns a Histogram with the options o. Nil means the defaults.
func NewHistogram(o *HistogramOptions) (*Histogram, error) {
	var opts HistogramOptions
	if o != nil {
		opts = *o
	}
	if opts.Span == 0 {
		opts.Span = 10 * time.Second
	}
	if opts.Buckets == 0 {
		opts.Buckets = 8
	}
	if opts.Highest == 0 {
		opts.Highest = time.Hour
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	ring := ringSize(opts.Buckets)
	h := &Histogram{
		buckets: opts.Buckets,
		highest: opts.Highest,
		laps:    bits.TrailingZeros(uint(ring)),
		stride:  (cellOf(opts.Highest)/16 + 1) * 16, // whole pairs of cache lines, so that buckets share none
	}
	h.slots.span = opts.Span / time.Duration(opts.Buckets)
	h.cells = make([]atomic.Uint64, ring*h.stride)
	return h, nil
}

func (o *HistogramOptions) validate() error {
	if o.Buckets < 1 || o.Buckets > maxBuckets {
		return fmt.Errorf("stats: Histogram: Buckets must be at least 1 and at most %d, got %d", maxBuckets, o.Buckets)
	}
	if o.Span < 0 || o.Span%time.Duration(o.Buckets) != 0 {
		return fmt.Errorf("stats: Histogram: Span must be a positive multiple of Buckets (%d) nanoseconds, got %v", o.Buckets, o.Span)
	}
	if o.Highest < 0 {
		return fmt.Errorf("stats: Histogram: Highest must be positive, got %v", o.Highest)
	}
	return nil
}

// Record counts the duration d at the instant now. A negative d counts as 0.
func (h *Histogram) Record(now time.Time, d time.Duration) {
	slot := h.at(now)
	lap := h.lap(slot)
	cell := &h.bucket(slot)[cellOf(max(0, min(d, h.highest)))]
	for {
		old := cell.Load()
		word := lap<<countBits | 1
		// Each cell says itself which lap it counts, so there is no moment at which a bucket is being emptied: the
		// first sample of a new lap overwrites the count of an old one.
		if old != 0 && old>>countBits == lap {
			if old&countMask == countMask {
				return
			}
			word = old + 1
		} else if old != 0 && newer(old>>countBits, lap) {
			return
		}
		if cell.CompareAndSwap(old, word) {
			return
		}
	}
}

// newer reports whether lap a comes after lap b. Laps are compared in a circle of 2^36, half of which is 34 years for a
// window of 32 ms.
func newer(a, b uint64) bool {
	return int64((a-b)<<countBits) > 0
}

func (h *Histogram) lap(slot int64) uint64 {
	return uint64(slot>>h.laps) & lapMask
}

func (h *Histogram) bucket(slot int64) []atomic.Uint64 {
	place := int(slot & (1<<h.laps - 1))
	return h.cells[place*h.stride:][:h.stride]
}

// cellOf returns the number of the cell that counts d, which is not negative.
func cellOf(d time.Duration) int {
	shift := max(0, bits.Len64(uint64(d))-subBits-1)
	return shift<<subBits + int(d>>shift)
}

// middle returns the duration that stands for all those that cell counts.
func middle(cell int) time.Duration {
	shift := max(0, cell>>subBits-1)
	return time.Duration(cell-shift<<subBits)<<shift + 1<<shift>>1
}
