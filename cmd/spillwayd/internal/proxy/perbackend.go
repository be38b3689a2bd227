package proxy

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
	"github.com/spillway-go/spillway/limiter"
)

// A perBackend is a limit whose numbers hold for each backend that is up.
type perBackend struct {
	limiter.Limiter
	up      func() int
	applied atomic.Int64 // backends that the inner limit counts with

	mu  sync.Mutex
	one limiter.Rule // for one backend; guarded by mu
}

func newPerBackend(rule limiter.Rule, up func() int) (*perBackend, error) {
	n := up()
	inner, err := limiter.New(config.Scale(rule, n))
	if err != nil {
		return nil, err
	}
	one, err := inner.Check(rule) // with every default
	if err != nil {
		return nil, err
	}
	p := &perBackend{Limiter: inner, up: up, one: one}
	p.applied.Store(int64(n))
	return p, nil
}

// Admit counts the backends and asks the inner limit.
func (p *perBackend) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	if n := int64(p.up()); n != p.applied.Load() && p.mu.TryLock() {
		p.applied.Store(n)
		_ = p.Limiter.Tune(config.Scale(p.one, int(n))) // the numbers are valid for all backends
		p.mu.Unlock()
	}
	return p.Limiter.Admit(ctx, r)
}

// Rule returns the rule for one backend.
func (p *perBackend) Rule() limiter.Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.one
}

// Tune replaces the rule for one backend.
func (p *perBackend) Tune(rule limiter.Rule) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	one, err := p.Check(rule)
	if err != nil {
		return err
	}
	if err := p.Limiter.Tune(config.Scale(one, int(p.applied.Load()))); err != nil {
		return err
	}
	p.one = one
	return nil
}
