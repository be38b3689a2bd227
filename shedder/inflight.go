package shedder

import (
	"math"
	"sync/atomic"

	"github.com/spillway-go/spillway/internal/stripe"
)

// A crowd counts the requests in flight, in one cell per stripe, so that cores do not fight over one cache line.
type crowd struct {
	cells []cell
}

// A cell counts those that came in by it and those of them that went.
type cell struct {
	entered, left atomic.Int64
	_             [stripe.Size - 16]byte
}

const (
	maxCells = 16 // whoever compares with a limit reads them all
	cellBits = 4
)

// plenty is how many places have to be free for one look at the others to be enough: more than there are who can enter between
// one's look and one's step.
const plenty = 256

// noLimit is a limit that nothing reaches.
const noLimit = math.MaxInt64

func newCrowd() crowd { return crowd{make([]cell, min(stripe.Wide(), maxCells))} }

// enter lets one more in unless that would make it more than most, and returns the cell that it has to leave. However many
// enter at the same time, there are never more than most inside: each counts itself first and looks at the others then, so
// that the last to count itself sees all who stay.
func (c *crowd) enter(most int64) (at int, ok bool) {
	at = stripe.Index(len(c.cells))
	if most == noLimit {
		c.cells[at].entered.Add(1)
		return at, true
	}
	inside := c.size()
	if inside >= most { // refusing only reads what those who run write
		return at, false
	}
	c.cells[at].entered.Add(1)
	if most-inside < plenty && c.size() > most {
		c.cells[at].entered.Add(-1)
		return at, false
	}
	return at, true
}

// force lets one more in whatever their number.
func (c *crowd) force(at int) { c.cells[at].entered.Add(1) }

func (c *crowd) leave(at int) { c.cells[at].left.Add(1) }

// undo makes an enter undone: who came in thereby was never inside.
func (c *crowd) undo(at int) { c.cells[at].entered.Add(-1) }

// size returns how many are inside. Who leaves while it counts may be counted still, never the other way round.
func (c *crowd) size() int64 {
	var sum int64
	for i := range c.cells {
		left := c.cells[i].left.Load()
		sum += c.cells[i].entered.Load() - left
	}
	return sum
}

// gone returns how many have left.
func (c *crowd) gone() int64 {
	var sum int64
	for i := range c.cells {
		sum += c.cells[i].left.Load()
	}
	return sum
}

// came returns how many have entered.
func (c *crowd) came() int64 {
	var sum int64
	for i := range c.cells {
		sum += c.cells[i].entered.Load()
	}
	return sum
}
