// Package inflight counts the requests in flight and keeps them below a limit, on many cores at once.
//
//	count := inflight.New()
//	at, ok := count.Enter(limit)
//	if !ok {
//		return errFull
//	}
//	defer count.Leave(at)
//
// The count is spread over cells, one per stripe, so that cores do not fight over one cache line.
package inflight

import (
	"math"
	"sync/atomic"

	"github.com/spillway-go/spillway/internal/stripe"
)

// CellBits is the number of bits that hold the number of any cell.
const CellBits = 4

// Cells is the greatest number of cells: comparing with a limit reads all of them.
const Cells = 1 << CellBits

// NoLimit is a limit that is never reached.
const NoLimit = math.MaxInt64

// plenty is the free room from which on one look at the cells is enough: more than the goroutines that can enter between
// that look and the step that follows it.
const plenty = 256

// A Counter counts requests in flight. It is made by [New] and safe for concurrent use. The zero Counter admits nothing.
type Counter struct {
	cells []cell
}

// A cell counts the requests that entered by it, and those of them that left.
type cell struct {
	entered, left atomic.Int64
	_             [stripe.Size - 16]byte
}

// New returns an empty Counter.
func New() Counter { return Counter{make([]cell, min(stripe.Wide(), Cells))} }

// Enter admits one request unless that would exceed limit, and returns the cell to pass to Leave or Undo. The limit holds
// however many goroutines enter at once: each counts itself first and then looks at the others, so the last one sees all
// that stay.
func (c *Counter) Enter(limit int64) (at int, ok bool) {
	at = stripe.Index(len(c.cells))
	if limit == NoLimit && len(c.cells) > 0 {
		c.cells[at].entered.Add(1)
		return at, true
	}
	inside := c.Size()
	if inside >= limit || len(c.cells) == 0 { // a refusal only reads
		return at, false
	}
	c.cells[at].entered.Add(1)
	if limit-inside < plenty && c.Size() > limit {
		c.cells[at].entered.Add(-1)
		return at, false
	}
	return at, true
}

// Leave ends a request that entered by cell at.
func (c *Counter) Leave(at int) { c.cells[at].left.Add(1) }

// Undo takes an Enter back: the request never ran and counts neither as entered nor as gone.
func (c *Counter) Undo(at int) { c.cells[at].entered.Add(-1) }

// Size returns the number of requests in flight. A request that leaves meanwhile may still count; one that is in flight
// always does.
func (c *Counter) Size() int64 {
	var sum int64
	for i := range c.cells {
		left := c.cells[i].left.Load()
		sum += c.cells[i].entered.Load() - left
	}
	return sum
}
