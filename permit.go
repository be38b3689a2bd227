package spillway

import (
	"sync/atomic"
	"time"
)

// A Permit is the right to run one request, given by [Gate.Enter]. Its holder owes it one [Permit.Done] or
// [Permit.DoneAt]. A Permit is a value to be kept in one variable: a copy is another permit for the same request, and
// only one of them may be ended. The zero Permit belongs to no request, and ending it does nothing.
type Permit struct {
	gate    *Gate
	cell    *gateCell // where the gate counts it
	ended   uint32    // 0 until the first Done; atomic, since a body may be closed while it is read
	req     Request
	tickets [maxPolicies]Ticket
	// arrivals holds, for policy i > 0, when the request reached it. It is nil unless the request waited in a queueing
	// policy, so that only waiting requests pay for it.
	arrivals *[maxPolicies]time.Time
}

// Done ends the request now and reports its outcome to every policy. Only the first call counts, so that
//
//	defer permit.Done(spillway.Failure)
//
// at the top covers panics and runtime.Goexit. Done does not allocate and may be called from any goroutine.
func (p *Permit) Done(o Outcome) {
	if p.over() {
		return
	}
	latency := time.Since(p.req.Arrived) // before the atomic operation, which waits until all writes to the Permit have ended
	if atomic.CompareAndSwapUint32(&p.ended, 0, 1) {
		p.end(o, latency, 0)
	}
}

// DoneAt is [Permit.Done] at a given time, for simulations and for callers that have just read the clock. If now is
// zero, DoneAt reads the clock; a time before the arrival counts as the arrival. RetryAfter is how long the answer
// asked the client to wait, for example in the Retry-After header of a 503. It is 0 or negative if the answer did not
// ask.
func (p *Permit) DoneAt(now time.Time, o Outcome, retryAfter time.Duration) {
	if p.over() || !atomic.CompareAndSwapUint32(&p.ended, 0, 1) {
		return
	}
	latency := now.Sub(p.req.Arrived)
	if now.IsZero() {
		latency = time.Since(p.req.Arrived)
	}
	p.end(o, latency, max(retryAfter, 0))
}

// over reports whether there is nothing to end. It only reads, so that a deferred second Done costs little.
func (p *Permit) over() bool { return p.gate == nil || atomic.LoadUint32(&p.ended) != 0 }

// Arrived returns when the request reached the Gate, or the zero time for the zero Permit.
func (p *Permit) Arrived() time.Time { return p.req.Arrived }

func (p *Permit) end(o Outcome, latency, retryAfter time.Duration) {
	if o >= Refused { // only a Gate reports it
		o = Ignored
	}
	res := Result{Outcome: o, Latency: max(latency, 0), RetryAfter: retryAfter}
	p.cell.ends[o].Add(1)
	if policies := p.gate.policies; len(policies) == 1 { // its own wait is not subtracted
		policies[0].Done(p.req, p.tickets[0], res)
		return
	}
	p.report(len(p.gate.policies), res)
}

// report ends the request at the first n policies, in reverse order, even if one of them panics.
func (p *Permit) report(n int, res Result) {
	left := n // only the deferred function reads it, so the loop keeps its own variable in a register
	defer func() {
		if left > 0 {
			p.report(left, res)
		}
	}()
	policies := p.gate.policies
	if p.arrivals == nil {
		for i := n - 1; i >= 0; i-- {
			left = i
			policies[i].Done(p.req, p.tickets[i], res)
		}
		return
	}
	for i := n - 1; i >= 0; i-- { // it waited: each policy gets the latency since the request reached it
		left = i
		r, ri := p.requestAt(i), res
		ri.Latency = max(res.Latency-r.Arrived.Sub(p.req.Arrived), 0)
		policies[i].Done(r, p.tickets[i], ri)
	}
}

// requestAt returns the request as policy i saw it.
func (p *Permit) requestAt(i int) Request {
	r := p.req
	if p.arrivals != nil {
		r.Arrived = p.arrivals[i]
		if r.Timeout > 0 {
			r.Timeout = earlier(0, r.Timeout-r.Arrived.Sub(p.req.Arrived))
		}
	}
	return r
}

// waited reads the clock behind queueing policy i and returns the request as the policies behind it see it.
func (p *Permit) waited(i int) Request {
	r := p.requestAt(i)
	now := r.Arrived.Add(time.Since(r.Arrived))
	if now.Sub(r.Arrived) < waitThreshold {
		return r
	}
	if p.arrivals == nil {
		p.arrivals = new([maxPolicies]time.Time)
		for j := range p.arrivals {
			p.arrivals[j] = p.req.Arrived
		}
	}
	for j := i + 1; j < maxPolicies; j++ {
		p.arrivals[j] = now
	}
	return p.requestAt(min(i+1, maxPolicies-1))
}
