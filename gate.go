package spillway

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/deadline"
	"github.com/spillway-go/spillway/internal/isnil"
)

// maxPolicies is how many tickets fit in a Permit.
const maxPolicies = 8

// waitThreshold is the shortest wait in a queueing policy that a Gate subtracts from the latency of the policies behind it. A shorter
// time is the cost of the call itself.
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
		if q, ok := p.(queuer); ok && q.Queues() {
			g.queues |= 1 << i
		}
	}
	return g
}

// Enter asks every policy whether r may run. If all admit it, the caller owes the Permit one [Permit.Done]. Otherwise
// there is no Permit to end, and the error is the *[Rejection] of the policy that refused, which matches [ErrRejected],
// or ctx.Err() if ctx had ended before, or ended while r waited in a queue. The Permit is then zero, and its Done does
// nothing.
//
// If r.Arrived is zero, Enter reads the clock. Enter does not allocate unless r waits. If a policy panics, Enter gives
// back to the policies before it, and the panic continues.
func (g *Gate) Enter(ctx context.Context, r Request) (p Permit, err error) {
	if err = ctx.Err(); err != nil {
		g.counts.cell().cancelled.Add(1)
		return p, err
	}
	ownClock := r.Arrived.IsZero()
	if ownClock {
		r.Arrived = g.now()
	}
	if by, ok := ctx.Deadline(); ok {
		left := by.Sub(r.Arrived)
		r.Timeout = earlier(r.Timeout, left)
		if ownClock && left <= 0 { // the timer of ctx is late
			g.counts.cell().cancelled.Add(1)
			return p, context.DeadlineExceeded
		}
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
	admitted := 1 // only the deferred function reads it, so the loop keeps its own variable in a register
	defer func() {
		if admitted > 0 { // the next one panicked or ended the goroutine
			g.giveBack(p, admitted)
		}
	}()
	r := p.req
	if g.queues&1 != 0 && ownClock {
		r = p.waited(0)
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
			r = p.waited(i)
		}
	}
	admitted = 0
	return nil
}

// earlier returns the shorter of timeout, which may be 0 for none, and left. A time that has passed is negative.
func earlier(timeout, left time.Duration) time.Duration {
	if left <= 0 {
		left = min(left, -1)
	}
	if timeout == 0 {
		return left
	}
	return min(timeout, left)
}

// anchorLife is how long a reading of the wall clock is used. A step of the wall clock shows in Request.Arrived after
// this time.
const anchorLife = time.Second

// now returns the time, at 60 % of the cost of time.Now: it reads the wall clock only once per anchorLife.
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

// giveBack ends the request with outcome Refused at the first n policies, in reverse order, even if one of them panics.
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

// Peek reports whether r would be refused now, and takes no permit. It returns nil if every policy would admit r, and
// otherwise the error that [Gate.Enter] would return. It is for adapters that can refuse early and cheaply, before they
// read a request and call Enter. The Gate counts a refusal by Peek. It does not count a nil, and Enter may still refuse
// r.
//
// Peek calls Admit of each policy and gives back at once. So the policies decide twice about a request that passes
// Peek. Policies that refuse at random refuse more of them, and counters of a single policy count them twice. Peek
// skips the first policy that queues and those behind it, and so never blocks. It does not allocate.
func (g *Gate) Peek(ctx context.Context, r Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.Arrived.IsZero() {
		r.Arrived = g.now()
	}
	if by, ok := ctx.Deadline(); ok {
		r.Timeout = earlier(r.Timeout, by.Sub(r.Arrived))
	}
	p := Permit{req: r}
	n := 0
	defer func() { g.giveBack(&p, n) }() // also if a policy panics
	for i, policy := range g.policies {
		if g.queues&(1<<i) != 0 {
			break
		}
		t, err := policy.Admit(ctx, r)
		if err != nil {
			g.counts.refused(i, err)
			return err
		}
		p.tickets[i] = t
		n++
	}
	return nil
}

// minBudget is the shortest time budget of a [Do] call whose missed deadline counts, until the latency of its key is
// known.
const minBudget = 100 * time.Millisecond

// Do runs fn if gate admits r, and returns fn's error, or the error of [Gate.Enter] if it was refused. The outcome is
//
//   - Success if fn returns nil,
//   - Ignored if ctx was cancelled, or if fn returns a refusal (a local rejection is not a failure),
//   - Ignored if the deadline of ctx has passed, and it gave fn less time than 99 % of successful calls of the key take
//     (100 ms while fewer than 10 are known), so that very short deadlines do not trip a breaker,
//   - Dropped if the deadline of ctx has passed, or fn's error wraps context.DeadlineExceeded,
//   - Failure for any other error, and for a panic, which passes through untouched.
func Do(ctx context.Context, gate *Gate, r Request, fn func(context.Context) error) error {
	permit, err := gate.Enter(ctx, r)
	if err != nil {
		return err
	}
	defer permit.Done(Failure)
	by, limited := ctx.Deadline()
	if !limited {
		err = fn(ctx)
		permit.Done(outcomeOf(ctx, err))
		return err
	}
	began := permit.Arrived()
	if gate.queues != 0 {
		began = time.Now()
	}
	err = fn(ctx)
	now := began.Add(time.Since(began))
	o := outcomeOf(ctx, err)
	switch late := !now.Before(by) || ctx.Err() != nil; {
	case o == Success:
		gate.chance().Observe(r.Key, now.Sub(began), by.Sub(began))
	case o == Dropped && late && !gate.chance().Fair(r.Key, by.Sub(began)):
		o = Ignored
	}
	permit.DoneAt(now, o, 0)
	return err
}

// chance returns the known latencies of the calls of Do.
func (g *Gate) chance() *deadline.Chance {
	if c := g.chances.Load(); c != nil {
		return c
	}
	g.chances.CompareAndSwap(nil, Must(deadline.NewChance(minBudget, nil)))
	return g.chances.Load()
}

func outcomeOf(ctx context.Context, err error) Outcome {
	switch {
	case err == nil:
		return Success
	case errors.Is(ctx.Err(), context.Canceled), errors.Is(err, ErrRejected):
		return Ignored
	case errors.Is(err, context.DeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Dropped
	}
	return Failure
}

// Must returns v, or panics if err is not nil. Use it for package variables and in main:
//
//	gate := spillway.New(spillway.Must(shedder.New(nil)))
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
