package shadow_test

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

// A probe writes down what it sees. Its tickets count up from 1.
type probe struct {
	refuse error // if not nil
	issued int
	lines  []string
}

func (p *probe) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	if p.refuse != nil {
		p.lines = append(p.lines, "refuses "+r.Key)
		return 0, p.refuse
	}
	p.issued++
	p.lines = append(p.lines, "admits "+r.Key)
	return spillway.Ticket(p.issued), nil
}

func (p *probe) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	p.lines = append(p.lines, fmt.Sprintf("ends %s as %d: %v after %v", r.Key, t, res.Outcome, res.Latency))
}

// take returns the lines since the last take.
func (p *probe) take() []string {
	lines := p.lines
	p.lines = nil
	return lines
}

// base is a time of day, far from any zero.
var base = time.Date(2026, time.March, 29, 0, 59, 58, 765432101, time.UTC)

type refuser func() error

func (f refuser) Admit(context.Context, spillway.Request) (spillway.Ticket, error) { return 0, f() }
func (refuser) Done(spillway.Request, spillway.Ticket, spillway.Result)            {}
