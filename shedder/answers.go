package shedder

import (
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/inflight"
	"github.com/spillway-go/spillway/internal/stripe"
)

// answers count the requests that ended and their latencies, in one cell per stripe, so that cores do not contend for
// one cache line.
type answers [inflight.Cells]answerCell

// An answerCell is emptied at each tick.
type answerCell struct {
	word   atomic.Int64 // successes in the lower bits, the sum of their latencies above
	failed atomic.Int64
	quick  atomic.Int64 // successes that no queue can have held up
	_      [stripe.Size - 24]byte
}

const (
	countBits = 20 // of a cell's word: a million successes in a tick
	unit      = 64 // ns; the sum of a tick's latencies may be 13 days
)

// add counts a success. A success that took less than quick also counts as quick.
func (a *answers) add(at int, latency, quick time.Duration) {
	c := &a[at&(inflight.Cells-1)]
	c.word.Add(max(int64(latency), 0)/unit<<countBits + 1)
	if latency < quick {
		c.quick.Add(1)
	}
}

func (a *answers) fail(at int) { a[at&(inflight.Cells-1)].failed.Add(1) }

// take returns the successes since the last call, the sum of their latencies in seconds, the quick ones among them, and the
// failures.
func (a *answers) take() (answered, latency, quick, failed float64) {
	for i := range a {
		c := &a[i]
		if c.word.Load() != 0 {
			word := c.word.Swap(0)
			answered += float64(word & (1<<countBits - 1))
			latency += float64(word>>countBits) * unit / 1e9
		}
		if c.failed.Load() != 0 {
			failed += float64(c.failed.Swap(0))
		}
		if c.quick.Load() != 0 {
			quick += float64(c.quick.Swap(0))
		}
	}
	return answered, latency, quick, failed
}
