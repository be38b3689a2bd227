package spillway

import (
	"sync/atomic"

	"github.com/spillway-go/spillway/internal/stripe"
	"github.com/spillway-go/spillway/internal/tally"
)

// GateStats is a snapshot of what a [Gate] has done since it was made. The figures are read one after the other while
// requests go on: each is right, their sums may be off by the requests of that moment.
type GateStats struct {
	Admitted  int64 // admitted by every policy
	InFlight  int64 // admitted and not ended yet
	Cancelled int64 // ctx had ended before a policy was asked, or ended in a queue
	Refused   int64 // refused by a policy: the sum of ByReason

	// How the admitted ones ended.
	Succeeded, Failed, Dropped, Ignored int64

	// ByReason counts the refusals by policy and reason, in the order of their first occurrence.
	ByReason []Refusal
}

// A Refusal counts how often one policy of a [Gate] refused for one reason.
type Refusal struct {
	Index  int    // place of the policy in the Gate, from 0
	Policy string // as in Rejection.Policy
	Reason string // as in Rejection.Reason
	Count  int64
}

// Stats returns a snapshot of the Gate's counts. It may be called at any time.
func (g *Gate) Stats() GateStats {
	c := &g.counts
	var ends [Refused]int64
	s := GateStats{}
	var cells []gateCell
	if p := c.cells.Load(); p != nil {
		cells = *p
	}
	// Ends are read before beginnings, so that InFlight is never negative.
	for i := range cells {
		for o := range ends {
			ends[o] += cells[i].ends[o].Load()
		}
	}
	for i := range cells {
		s.Admitted += cells[i].admitted.Load()
		s.Cancelled += cells[i].cancelled.Load()
	}
	s.Ignored, s.Succeeded, s.Failed, s.Dropped = ends[Ignored], ends[Success], ends[Failure], ends[Dropped]
	s.InFlight = s.Admitted - s.Succeeded - s.Failed - s.Dropped - s.Ignored
	c.refusals.Each(func(e tally.Entry) {
		s.ByReason = append(s.ByReason, Refusal(e))
		s.Refused += e.Count
	})
	return s
}

// gateCounts are striped as a [stats.Counter] is, with all counts of a stripe in one place: a request touches them twice.
type gateCounts struct {
	cells    atomic.Pointer[[]gateCell] // nil until the first count
	refusals tally.Tally
}

type gateCell struct {
	admitted, cancelled atomic.Int64
	ends                [Refused]atomic.Int64
	_                   [stripe.Size - (2+Refused)*8]byte
}

// cell returns the cell of the calling goroutine.
func (c *gateCounts) cell() *gateCell {
	cells := c.cells.Load()
	if cells == nil {
		cells = c.grow()
	}
	return &(*cells)[stripe.Index(len(*cells))]
}

func (c *gateCounts) grow() *[]gateCell {
	cells := make([]gateCell, stripe.Wide())
	c.cells.CompareAndSwap(nil, &cells)
	return c.cells.Load()
}

// refused counts one refusal by policy i.
func (c *gateCounts) refused(i int, err error) {
	if rej := RejectionOf(err); rej != nil {
		c.refusals.Add(i, rej.Policy, rej.Reason)
		return
	}
	c.cell().cancelled.Add(1)
}
