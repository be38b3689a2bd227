package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/spillway-go/spillway"
)

// A gateBook is a gate and its expected counts.
type gateBook struct {
	w    *world
	name string
	gate *spillway.Gate

	mu        sync.Mutex
	admitted  int64
	cancelled int64
	refused   map[refusal]int64
	outcomes  [4]int64 // by spillway.Outcome
	panicked  int64
}

type refusal struct{ policy, reason string }

// A pass is the state of an admitted request.
type pass struct {
	g      *gateBook
	permit spillway.Permit
}

func (g *gateBook) ended() int64 {
	return g.outcomes[0] + g.outcomes[1] + g.outcomes[2] + g.outcomes[3]
}

// enter asks the gate and records the answer. It returns nil if the request was not admitted.
func (g *gateBook) enter(ctx context.Context, r spillway.Request) (p *pass) {
	p = &pass{g: g}
	var err error
	entered := false
	defer func() {
		if entered {
			return
		}
		if v := recover(); v != nil {
			if _, ours := v.(fault); !ours {
				panic(v)
			}
		}
		g.mu.Lock()
		g.panicked++
		g.mu.Unlock()
		p = nil
	}()
	p.permit, err = g.gate.Enter(ctx, r)
	entered = true
	g.mu.Lock()
	defer g.mu.Unlock()
	switch rej := spillway.RejectionOf(err); {
	case err == nil:
		g.admitted++
		return p
	case rej != nil:
		g.refused[refusal{rej.Policy, rej.Reason}]++
	case ctx.Err() != nil:
		g.cancelled++
	default:
		g.w.violate(g.name, "a rejection or the end of the context expected, got %v", err)
	}
	return nil
}

// done ends the request, in one of the ways in which handlers end.
func (p *pass) done(o spillway.Outcome, rng *rand.Rand) {
	switch n := rng.Float64(); {
	case n < 0.001:
		o = spillway.Failure
		func() {
			defer func() { _ = recover() }()
			defer p.finish(o)
			panic("handler")
		}()
	case n < 0.002:
		o = spillway.Failure
		var gone sync.WaitGroup
		gone.Go(func() {
			defer p.finish(o)
			runtime.Goexit()
		})
		gone.Wait()
	default:
		p.finish(o)
	}
	if rng.Float64() < 0.01 { // a deferred Done that comes too late
		p.permit.Done(spillway.Failure)
		p.permit.DoneAt(p.g.w.time(), spillway.Success, 0)
	}
	p.g.mu.Lock()
	p.g.outcomes[o]++
	p.g.mu.Unlock()
}

// finish tells the gate.
func (p *pass) finish(o spillway.Outcome) { p.permit.DoneAt(p.g.w.time(), o, 0) }

// check compares the counts of the gate with the books.
func (g *gateBook) check() {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.gate.Stats()
	var refused int64
	for _, n := range g.refused {
		refused += n
	}
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"admitted", s.Admitted, g.admitted},
		{"in flight", s.InFlight, g.admitted - g.ended()},
		{"cancelled", s.Cancelled, g.cancelled},
		{"rejected", s.Refused, refused},
		{"ignored", s.Ignored, g.outcomes[spillway.Ignored]},
		{"succeeded", s.Succeeded, g.outcomes[spillway.Success]},
		{"failed", s.Failed, g.outcomes[spillway.Failure]},
		{"dropped", s.Dropped, g.outcomes[spillway.Dropped]},
	} {
		if c.got != c.want {
			g.w.violate(g.name, "%s: %d expected, the gate says %d", c.what, c.want, c.got)
		}
	}
	var listed int64
	said := map[refusal]int64{} // two policies of one gate may have the same name
	for _, r := range s.ByReason {
		listed += r.Count
		said[refusal{r.Policy, r.Reason}] += r.Count
	}
	for r, want := range g.refused {
		if said[r] != want {
			g.w.violate(g.name, "refused by %s for %q: %d expected, the gate says %d", r.policy, r.reason, want, said[r])
		}
	}
	if listed != s.Refused {
		g.w.violate(g.name, "the reasons should add up to %d refusals, they add up to %d", s.Refused, listed)
	}
}
