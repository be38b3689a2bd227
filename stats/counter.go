package stats

import (
	"sync/atomic"

	"github.com/spillway-go/spillway/internal/stripe"
)

// A Counter is an int64 sum that many cores may add to at once. It keeps one cell per stripe, two cache lines apart, so
// that goroutines on different cores seldom touch the same line.
//
// The zero Counter is ready to use and must not be copied after its first use. The first Add allocates the cells (128
// bytes each, two to four per GOMAXPROCS, at most 32); no later call allocates. Methods may be called concurrently.
type Counter struct {
	cells atomic.Pointer[[]counterCell]
}

type counterCell struct {
	n atomic.Int64
	_ [stripe.Size - 8]byte
}

// Add adds n, which may be negative.
func (c *Counter) Add(n int64) {
	cells := c.cells.Load()
	if cells == nil {
		cells = c.grow()
	}
	(*cells)[stripe.Index(len(*cells))].n.Add(n)
}

// Value returns the sum of all calls of Add that returned before Value was called. Calls that are still running may or
// may not be included. It reads every cell, so use it for snapshots, not for a decision on each request.
func (c *Counter) Value() int64 {
	cells := c.cells.Load()
	if cells == nil {
		return 0
	}
	var sum int64
	for i := range *cells {
		sum += (*cells)[i].n.Load()
	}
	return sum
}

func (c *Counter) grow() *[]counterCell {
	cells := make([]counterCell, stripe.Count())
	if c.cells.CompareAndSwap(nil, &cells) {
		return &cells
	}
	return c.cells.Load()
}
