package spillway

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/deadline"
	"github.com/spillway-go/spillway/internal/isnil"
)

// maxPolicies is how many tickets fit in a Permit.
const maxPolicies = 8

// waitThreshold is the shortest wait in a Queuer that a Gate takes off the latency of the policies behind it. What is
// shorter is the cost of asking.
const waitThreshold = 50 * time.Microsecond

// A Gate asks policies in order whether a request may run. It is immutable and safe for concurrent use.
type Gate struct {
	policies []Policy
	queues   uint8 // bit i: policies[i] may block in Admit
	anchor   atomic.Pointer[time.Time]
	counts   gateCounts
	chances  atomic.Pointer[deadline.Chance] // nil until a call of Do has a deadline
}

// New returns a Gate that asks the policies in the given order and, when one refuses, gives back in reverse. A Gate of no
// policies admits everything. New panics if a policy is nil or if there are more than eight.
func New(policies ...Policy) *Gate {
	if len(policies) > maxPolicies {
		panic(fmt.Sprintf("spillway: New: at most %d policies, got %d", maxPolicies, len(policies)))
	}
	g := &Gate{policies: append([]Policy(nil), policies...)}
	for i, p := range g.policies {
		if isnil.Is(p) {
			panic(fmt.Sprintf("spillway: New: policy %d is nil", i))
		}
		if _, ok := p.(Queuer); ok {
			g.queues |= 1 << i
		}
	}
	return g
}

// Enter asks every policy whether r may run. If all admit it, the caller owes the Permit one [Permit.Done]. Otherwise
// nothing is owed and the error is the *[Rejection] of the policy that refused, which matches [ErrRejected], or
// ctx.Err() if ctx had ended or ended while r waited in a policy that queues; the Permit is then zero, and its Done does
// nothing.
//
// If r.Arrived is zero, Enter reads the clock. Enter does not allocate unless r waits. If a policy panics, Enter gives back what the
// policies before it admitted, and the panic goes on.
func (g *Gate) Enter(ctx context.Context, r Request) (p Permit, err error) {
	if err = ctx.Err(); err != nil {
		g.counts.cell().cancelled.Add(1)
		return p, err
	}
	ownClock := r.Arrived.IsZero()
	if ownClock {
		r.Arrived = g.now()
	}
	p.req = r
	if len(g.policies) > 0 {
		if p.tickets[0], err = g.policies[0].Admit(ctx, r); err != nil {
			g.counts.refused(0, err)
			return Permit{}, err
		}
		if len(g.policies) > 1 {
			if err = g.enterRest(ctx, &p, ownClock); err != nil {
				return Permit{}, err
			}
		}
	}
	p.gate, p.cell = g, g.counts.cell()
	p.cell.admitted.Add(1)
	return p, nil
}

// enterRest asks all policies but the first, which has admitted r.
func (g *Gate) enterRest(ctx context.Context, p *Permit, ownClock bool) error {
	admitted := 1 // written for the deferred function alone, so that the loop keeps its variable in a register
	defer func() {
		if admitted > 0 { // the next one panicked or ended the goroutine
			g.giveBack(p, admitted)
		}
	}()
	r := p.req
	if g.queues&1 != 0 && ownClock {
		r.Arrived = p.waited(0)
	}
	policies, queues := g.policies, g.queues
	for i := 1; i < len(policies) && i < maxPolicies; i++ {
		t, err := policies[i].Admit(ctx, r)
		if err != nil {
			g.counts.refused(i, err)
			return err
		}
		p.tickets[i] = t
		admitted = i + 1
		if queues&(1<<i) != 0 && ownClock {
			r.Arrived = p.waited(i)
		}
	}
	admitted = 0
	return nil
}

// anchorLife is how long a reading of the wall clock serves. A step of the wall clock shows in Request.Arrived after it.
const anchorLife = time.Second

// now is time.Now at 60 % of its price: it reads the monotonic clock alone, and the wall clock once per anchorLife.
func (g *Gate) now() time.Time {
	if anchor := g.anchor.Load(); anchor != nil {
		if since := time.Since(*anchor); since >= 0 && since < anchorLife {
			return anchor.Add(since)
		}
	}
	now := time.Now()
	g.anchor.Store(&now)
	return now
}

// giveBack ends the request with outcome Refused at the first n policies, the last of them first. If one panics, the others are
// told nevertheless.
func (g *Gate) giveBack(p *Permit, n int) {
	left := n
	defer func() {
		if left > 0 {
			g.giveBack(p, left)
		}
	}()
	policies := g.policies
	for i := n - 1; i >= 0; i-- {
		left = i
		r := &p.req
		if p.arrivals != nil {
			at := p.requestAt(i)
			r = &at
		}
		policies[i].Done(*r, p.tickets[i], Result{Outcome: Refused})
	}
}
