// Package gatetest provides the policy that the tests of adapters put behind their gates.
//
//	p := &gatetest.Recorder{}
//	gate := spillway.New(p)
//	... // let requests through the gate
//	require.Equal(t, []spillway.Outcome{spillway.Success}, p.Outcomes())
//	require.Zero(t, p.InFlight())
//
// Only tests import it.
package gatetest

import (
	"context"
	"slices"
	"sync"

	"github.com/spillway-go/spillway"
)

// A Recorder is a Policy that remembers what it saw. It admits everything, unless Refuse was called. The zero Recorder
// is ready to use, and its methods may be called concurrently.
type Recorder struct {
	mu       sync.Mutex
	refusal  *spillway.Rejection
	requests []spillway.Request
	results  []spillway.Result
}

// Refusing returns a Recorder that refuses everything with rej.
func Refusing(rej *spillway.Rejection) *Recorder { return &Recorder{refusal: rej} }

// Refuse makes p refuse everything with rej from now on, or admit it if rej is nil.
func (p *Recorder) Refuse(rej *spillway.Rejection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusal = rej
}

// Admit remembers r, or refuses it.
func (p *Recorder) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusal != nil {
		return 0, p.refusal
	}
	p.requests = append(p.requests, r)
	return 0, nil
}

// Done remembers res.
func (p *Recorder) Done(_ spillway.Request, _ spillway.Ticket, res spillway.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.results = append(p.results, res)
}

// Requests returns the admitted requests, in order.
func (p *Recorder) Requests() []spillway.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Results returns the results of admitted requests, in the order of their ends.
func (p *Recorder) Results() []spillway.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.results)
}

// Outcomes returns the outcomes in Results.
func (p *Recorder) Outcomes() (out []spillway.Outcome) {
	for _, res := range p.Results() {
		out = append(out, res.Outcome)
	}
	return out
}

// InFlight returns how many admitted requests have not ended.
func (p *Recorder) InFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.requests) - len(p.results)
}

var _ spillway.Policy = (*Recorder)(nil)
