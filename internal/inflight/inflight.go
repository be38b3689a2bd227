// Package inflight counts the requests in flight and keeps them below a limit, on many cores at once.
//
//	count := inflight.New()
//	at, ok := count.Enter(limit)
//	if !ok {
//		return errFull
//	}
//	defer count.Leave(at)
//
// # Credits
//
// A request in flight holds a credit. Credits are stored in cells, one per stripe, so that cores do not contend for one
// cache line. Enter takes a credit from the goroutine's own cell and Leave puts it back there, with one atomic addition
// each. The sum of all credits, idle or held, is the reserve. As long as the reserve is at most the limit, so are the
// requests in flight, and no goroutine has to look at the other cells.
//
// A goroutine whose own cell is empty grows the reserve up to the limit, and then takes idle credits from other cells. When
// the limit is below the reserve, idle credits are retired first. So a limit may differ from call to call: it may be tuned,
// and important requests may have a higher one.
//
// # Answers
//
// Answer ends a request like Leave and also counts its latency, still with one atomic addition. The number of answers in a
// cell is the number of credits that they have given back. These credits are collected when the cell has no others, when
// another cell needs them, and by Answers.
package inflight

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/stripe"
)

// CellBits is the number of bits that hold the number of any cell.
const CellBits = 4

// Cells is the greatest number of cells: a goroutine that finds no credit reads all of them.
const Cells = 1 << CellBits

// NoLimit is a limit that is never reached.
const NoLimit = math.MaxInt64

const (
	idleBits = 16            // of a cell's word, for its idle credits; the 48 above it count entries for 9 years at 1e6/s
	entry    = 1 << idleBits // one entry
	hoard    = 1 << 14       // number of idle credits in one cell above which half of them are retired, far from overflow
	chunk    = 64            // most credits added to the reserve at once, which are briefly in no cell
	slice    = 2 * Cells     // growth takes this part of the room at most, so that the last credits are taken one by one
)

// A Counter counts requests in flight. It is made by [New], which its copies share, and is safe for concurrent use. The
// zero Counter admits nothing.
type Counter struct {
	state *state
}

type state struct {
	reserve atomic.Int64 // credits, idle or held
	_       [stripe.Size - 8]byte
	cells   [Cells]cell
	last    int // number of the last cell that is used: a power of two, less one
}

// A cell holds its idle credits and the number of requests that entered through it, in one word: entries << idleBits +
// idle.
type cell struct {
	word    atomic.Int64
	fresh   atomic.Uint64 // answers whose credits are not in word yet: sum of latencies << latencyAt + quick << quickAt + number
	settled atomic.Uint64 // the other answers since the last call of Answers: sum of latencies << numberBits + number
	quick   atomic.Int64  // the quick ones of settled
	_       [stripe.Size - 32]byte
}

func idle(word int64) int64    { return int64(int16(word)) }
func entered(word int64) int64 { return (word - idle(word)) >> idleBits }

const (
	quickAt    = 15                     // in fresh, above the number of answers
	latencyAt  = 2 * quickAt            // in fresh, above the number of quick ones
	numberMask = uint64(1)<<quickAt - 1 // of each of these numbers
	full       = 1<<63 | 1<<(quickAt-2) // bits of fresh that mean it must be collected: many answers, or long ones
	numberBits = 20                     // of settled: a million answers between two calls of Answers
	unit       = 64 * time.Nanosecond   // of latencies; the sum in settled may be 13 days
	longest    = (1 << 28) * unit       // 17 s; a longer latency goes to settled at once, since a few would fill fresh
)

// waiting returns the number of credits that can be collected.
func (c *cell) waiting() int64 { return int64(c.fresh.Load() & numberMask) }

// collect settles the fresh answers and returns their credits, which the caller adds to a word.
func (c *cell) collect() int64 {
	if c.waiting() == 0 {
		return 0
	}
	w := c.fresh.Swap(0)
	n := w & numberMask
	c.settled.Add(w>>latencyAt<<numberBits + n)
	if quick := w >> quickAt & numberMask; quick > 0 {
		c.quick.Add(int64(quick))
	}
	return int64(n)
}

// New returns an empty Counter.
func New() Counter { return sized(min(stripe.Wide(), Cells)) }

func sized(cells int) Counter { return Counter{&state{last: cells - 1}} }

// Enter admits one request unless that would exceed limit, and returns the cell to pass to Leave or Undo. The limit
// holds for any number of concurrent goroutines.
func (c Counter) Enter(limit int64) (at int, ok bool) {
	s := c.state
	if s == nil {
		return 0, false
	}
	at = stripe.Index(Cells) & s.last
	own := &s.cells[at&(Cells-1)].word
	if limit == NoLimit {
		if idle(own.Add(entry-1)) >= 0 {
			return at, true
		}
		own.Add(1 - entry)
	} else if idle(own.Load()) > 0 && s.reserve.Load() <= limit { // reads first, because a refusal should write nothing
		// Check the reserve again while holding the credit: it may have grown for a request with a higher limit.
		if idle(own.Add(entry-1)) >= 0 && s.reserve.Load() <= limit {
			return at, true
		}
		own.Add(1 - entry)
	}
	return at, s.search(at, limit)
}

// search enters through the cell at, which has too few credits of its own.
func (s *state) search(at int, limit int64) bool {
	c := &s.cells[at&(Cells-1)]
	own := &c.word
	for {
		reserve := s.reserve.Load()
		if reserve <= limit {
			if n := c.collect(); n > 0 {
				if s.reserve.Load() <= limit {
					s.giveBack(at, entry+n-1)
					return true
				}
				s.giveBack(at, n)
				continue
			}
		}
		switch {
		case reserve < limit:
			grow := max(1, min(chunk, (limit-reserve)/slice))
			if s.reserve.CompareAndSwap(reserve, reserve+grow) {
				own.Add(entry + grow - 1)
				return true
			}
		case reserve == limit:
			taken := s.take(at, half)
			if taken == 0 {
				return false
			}
			if s.reserve.Load() <= limit {
				own.Add(entry + taken - 1)
				return true
			}
			own.Add(taken)
		default:
			if reserve-s.idle() >= limit { // only reads: there may be many to refuse
				return false
			}
			s.reserve.Add(-s.take(at, reserve-limit))
		}
	}
}

// half is for take: half of the idle credits of a cell, rounded up, so that they spread.
const half = -1

// take takes up to most idle credits from one cell; the caller's own cell comes last. It returns 0 if there are none.
func (s *state) take(at int, most int64) int64 {
	for i := range s.last + 1 {
		from := (at + 1 + i) & s.last & (Cells - 1)
		if s.cells[from].waiting() > 0 {
			s.settle(from)
		}
		word := &s.cells[from].word
		for w := word.Load(); idle(w) > 0; w = word.Load() {
			n := min(idle(w), most)
			if most == half {
				n = (idle(w) + 1) / 2
			}
			if word.CompareAndSwap(w, w-n) {
				return n
			}
		}
	}
	return 0
}

// idle returns the sum of the idle credits.
func (s *state) idle() (sum int64) {
	for i := range s.cells[:s.last+1] {
		sum += s.cells[i].waiting() // first: a credit that moves meanwhile should not be missed
		sum += idle(s.cells[i].word.Load())
	}
	return sum
}

// Len returns the number of cells: Enter returns a number below it.
func (c Counter) Len() int {
	if c.state == nil {
		return 0
	}
	return c.state.last + 1
}

// Leave ends a request that was counted in cell at.
func (c Counter) Leave(at int) { c.state.giveBack(at, 1) }

// giveBack adds n credits, and perhaps an entry, to the cell at.
func (s *state) giveBack(at int, n int64) {
	if idle(s.cells[at&(Cells-1)].word.Add(n)) >= hoard {
		s.trim(at)
	}
}

// trim retires half of the idle credits of the cell at.
//
//go:noinline
func (s *state) trim(at int) { s.reserve.Add(-s.take(at-1, half)) }

// Answer ends a request that was counted in cell at, as Leave does, and counts its latency, and whether it was quick.
func (c Counter) Answer(at int, latency time.Duration, quick bool) {
	if latency = max(latency, 0); latency >= longest {
		c.answerLate(at, latency, quick)
		return
	}
	n := uint64(latency/unit)<<latencyAt + 1
	if quick {
		n += 1 << quickAt
	}
	if s := c.state; s.cells[at&(Cells-1)].fresh.Add(n)&full != 0 {
		s.settle(at)
	}
}

// settle collects the credits of the cell at.
//
//go:noinline
func (s *state) settle(at int) {
	if n := s.cells[at&(Cells-1)].collect(); n > 0 {
		s.giveBack(at, n)
	}
}

// answerLate is Answer for a long latency.
//
//go:noinline
func (c Counter) answerLate(at int, latency time.Duration, quick bool) {
	own := &c.state.cells[at&(Cells-1)]
	own.settled.Add(uint64(latency/unit)<<numberBits + 1)
	if quick {
		own.quick.Add(1)
	}
	c.Leave(at)
}

// Answers returns the calls of Answer since the last call of Answers, the quick ones among them, and the sum of their
// latencies in seconds. One call may run at a time.
func (c Counter) Answers() (n, quick int64, latency float64) {
	for i := range c.Len() {
		c.state.settle(i)
		own := &c.state.cells[i]
		if own.settled.Load() != 0 {
			word := own.settled.Swap(0)
			n += int64(word & (1<<numberBits - 1))
			latency += float64(word>>numberBits) * unit.Seconds()
		}
		if own.quick.Load() != 0 {
			quick += own.quick.Swap(0)
		}
	}
	return n, quick, latency
}

// Undo reverses an Enter. The request never ran, so it does not count as entered or left.
func (c Counter) Undo(at int) { c.state.cells[at&(Cells-1)].word.Add(1 - entry) }

// Size returns the number of requests in flight. While other requests enter and leave, it may be off by a few.
func (c Counter) Size() int64 {
	if c.state == nil {
		return 0
	}
	idle := c.state.idle()
	return max(c.state.reserve.Load()-idle, 0)
}

// Totals returns the requests in flight, like Size, and the number of requests that have entered. The difference is the
// number that have left.
func (c Counter) Totals() (size, in int64) {
	s := c.state
	if s == nil {
		return 0, 0
	}
	var free int64
	for i := range s.cells[:s.last+1] {
		free += s.cells[i].waiting()
		w := s.cells[i].word.Load()
		free += idle(w)
		in += entered(w)
	}
	return max(s.reserve.Load()-free, 0), in
}
