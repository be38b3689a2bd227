package main

import (
	"context"
	"sync"

	"github.com/spillway-go/spillway"
)

// A probe wraps a policy and keeps separate books of its decisions, to compare with its figures. A Gate uses it in
// place of the policy.
type probe struct {
	spillway.Policy
	w    *world
	name string

	mu       sync.Mutex // requests that wait in a queue have goroutines of their own
	admitted int64
	refused  map[string]int64
	ended    int64 // neither in flight nor undone
	undone   int64
	cost     int64 // in flight
	keys     map[string]int64
	waiting  int64
	gaveUp   int64

	ledger   func(key string) *ledger // nil if the policy promises no number
	admits   func(r spillway.Request) // checks more, with mu held, after an admission
	turned   func(r spillway.Request, reason string)
	numbers  func() numbers
	lastTake *entry // of the last admission; a later policy of the gate may undo it
}

// numbers are figures of a policy that must agree with the books; -1 means that the policy does not have the figure.
type numbers struct{ inFlight, cost, refused, admitted, returned int64 }

func costOf(r spillway.Request) int64 { return max(int64(r.Cost), 1) }

// Admit asks the policy and records the answer in the books.
func (p *probe) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	p.mu.Lock()
	p.waiting++
	p.mu.Unlock()
	answered := false
	defer func() {
		if !answered { // it panicked
			p.mu.Lock()
			p.waiting--
			p.mu.Unlock()
		}
	}()
	t, err := p.Policy.Admit(ctx, r)
	answered = true
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
	switch rej := spillway.RejectionOf(err); {
	case err == nil:
		p.admitted++
		p.cost += costOf(r)
		p.keys[r.Key] += costOf(r)
		p.lastTake = nil
		if p.ledger != nil {
			if l := p.ledger(r.Key); l != nil {
				p.lastTake = l.take(p.w, r.Arrived, costOf(r))
			}
		}
		if p.admits != nil {
			p.admits(r)
		}
	case rej != nil:
		p.refused[rej.Reason]++
		if p.turned != nil {
			p.turned(r, rej.Reason)
		}
	default:
		p.gaveUp++
	}
	return t, err
}

// Done tells the policy, and records the end in the books.
func (p *probe) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	p.mu.Lock()
	p.cost -= costOf(r)
	if p.keys[r.Key] -= costOf(r); p.keys[r.Key] == 0 {
		delete(p.keys, r.Key)
	}
	if res.Outcome == spillway.Refused {
		p.undone++
		if p.lastTake != nil {
			p.lastTake.n, p.lastTake = 0, nil
		}
	} else {
		p.ended++
	}
	p.mu.Unlock()
	p.Policy.Done(r, t, res)
}

func (p *probe) inFlight() int64 { return p.admitted - p.ended - p.undone }

func (p *probe) allRefused() (sum int64) {
	for _, n := range p.refused {
		sum += n
	}
	return sum
}

// check compares the figures of the policy with the books.
func (p *probe) check() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.numbers == nil {
		return
	}
	n := p.numbers()
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"in flight", n.inFlight, p.inFlight()},
		{"places taken", n.cost, p.cost},
		{"refused", n.refused, p.allRefused()},
		{"admitted", n.admitted, p.admitted},
		{"given back", n.returned, p.undone},
	} {
		if c.got != -1 && c.got != c.want {
			p.w.violate(p.name, "%s: %d expected, it says %d", c.what, c.want, c.got)
		}
	}
}

// A queueing probe wraps a policy whose Admit may block.
type queueing struct{ *probe }

// Queues marks it.
func (queueing) Queues() bool { return true }

// faulty is a user's policy that refuses a few requests without a reason, and panics now and then. It decides by their
// arrival times, so that a run is the same whichever goroutine asks first.
type faulty struct{ w *world }

var errWhim = &spillway.Rejection{Policy: "faulty", Reason: "whim"}

// fault is the panic value of a faulty policy.
type fault struct{}

func (f faulty) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	x := (uint64(r.Arrived.Sub(f.w.base)) + f.w.seed) * 0x9E3779B97F4A7C15
	switch x = (x ^ x>>29) * 0xBF58476D1CE4E5B9 >> 32 % 10_000; {
	case x < 2:
		panic(fault{})
	case x < 100:
		return 0, errWhim
	}
	return 0, nil
}

func (faulty) Done(spillway.Request, spillway.Ticket, spillway.Result) {}
