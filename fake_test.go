package spillway_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-go/spillway"
)

var errFull = &spillway.Rejection{Policy: "slots", Reason: "full", RetryAfter: time.Second}

// A slots admits limit requests at once.
type slots struct {
	mu    sync.Mutex
	limit int
	used  int
}

func (s *slots) Admit(context.Context, spillway.Request) (spillway.Ticket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.limit {
		return 0, errFull
	}
	s.used++
	return 0, nil
}

func (s *slots) Done(spillway.Request, spillway.Ticket, spillway.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
}

func (s *slots) inFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// A journal is what the policies of one gate saw, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) addf(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// take returns the lines since the last take.
func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

// A probe writes down what it sees. Its tickets count up from 100 times its number.
type probe struct {
	*journal
	n      int
	refuse error // if not nil

	mu      sync.Mutex
	issued  int
	admits  []spillway.Request
	ends    []spillway.Request
	results []spillway.Result
}

func (p *probe) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse != nil {
		p.addf("%d refuses %s", p.n, r.Key)
		return 0, p.refuse
	}
	p.issued++
	p.admits = append(p.admits, r)
	p.addf("%d admits %s", p.n, r.Key)
	return spillway.Ticket(100*p.n + p.issued), nil
}

func (p *probe) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends = append(p.ends, r)
	p.results = append(p.results, res)
	p.addf("%d ends %s as %d: %v after %v", p.n, r.Key, t, res.Outcome, res.Latency)
}

// probes returns n probes that share a journal, and the same as policies.
func probes(n int) ([]*probe, []spillway.Policy, *journal) {
	j := &journal{}
	var ps []*probe
	var policies []spillway.Policy
	for i := range n {
		p := &probe{journal: j, n: i}
		ps = append(ps, p)
		policies = append(policies, p)
	}
	return ps, policies, j
}

// A waiting is a probe that makes requests wait, for as long as wait says or until their ctx ends.
type waiting struct {
	*probe
	wait time.Duration
}

func (*waiting) Queues() bool { return true }

func (w *waiting) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	select {
	case <-time.After(w.wait):
		return w.probe.Admit(ctx, r)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// base is a time of day, far from any zero.
var base = time.Date(2026, time.March, 29, 0, 59, 58, 765432101, time.UTC)

func at(d time.Duration) time.Time { return base.Add(d) }
