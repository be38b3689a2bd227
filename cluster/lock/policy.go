package lock

import (
	"context"
	"errors"
	"math"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
)

// Admit takes a permit of r.Key, or refuses r. It asks Redis once, for at most Timeout, and never waits for a permit. A
// request counts as one, whatever its cost. Admit allocates, and blocks for a round trip: put it behind the policies
// that decide locally. Unless Fallback is AllowAll, it does not ask Redis while this process alone runs Limit requests of the key.
//
// If Redis does not answer, Fallback decides. A request that Fallback admitted continues without a lease, and so does one whose
// lease was lost, which Stats.Lapsed counts. Once Redis answers renewals again, they have leases, even if there are more than Limit.
func (s *Semaphore) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	if s.conn == nil {
		return 0, call.ErrZero
	}
	if s.full(r.Key) {
		return 0, s.refuse(refusedLimit)
	}
	p, err := s.try(ctx, nil, r.Key)
	if err == nil {
		return spillway.Ticket(p.serial), nil
	}
	switch refused := spillway.RejectionOf(err); {
	case call.Unanswered(err), errors.Is(err, ErrLeaseLost):
		return s.withoutRedis(r.Key)
	case errors.Is(err, ErrClosed):
		return 0, s.refuse(refusedRedis)
	case refused != nil:
		return 0, refused
	}
	return 0, err
}

// full reports whether this process alone runs Limit requests of a key, so that Redis need not be asked. With AllowAll it has to be,
// because a Redis that does not answer would not refuse.
func (s *Semaphore) full(key string) bool {
	o := s.live.Load()
	if o.Fallback == cluster.AllowAll {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[key] >= o.Limit
}

// withoutRedis lets Fallback decide. The permit of an admitted request has no lease yet.
func (s *Semaphore) withoutRedis(key string) (spillway.Ticket, error) {
	o, most := s.live.Load(), math.MaxInt
	switch o.Fallback {
	case cluster.Divide:
		most = max(o.Limit/o.Nodes, 1)
	case cluster.RefuseAll:
		return 0, s.refuse(refusedRedis)
	}
	serial, token := s.token()
	p := &permit{s: s, serial: serial, key: key, token: token, shares: 1, lease: tenure{ttl: s.ttl, guard: s.guard}, lost: true}
	s.mu.Lock()
	closed, fits := s.closed, s.requests[key] < most
	if fits && !closed {
		s.register(p)
	}
	s.mu.Unlock()
	switch {
	case closed:
		return 0, s.refuse(refusedRedis)
	case !fits:
		return 0, s.refuse(refusedLimit)
	}
	s.counts.byFallback.Add(1)
	return spillway.Ticket(serial), nil
}

// Done releases the permit in the background. It never waits.
func (s *Semaphore) Done(_ spillway.Request, t spillway.Ticket, _ spillway.Result) {
	s.mu.Lock()
	p := s.permits[uint64(t)]
	s.mu.Unlock()
	if p == nil || p.ctx != nil {
		return
	}
	p.end(nil)
	if back := p.handBack(); !back.until.IsZero() {
		s.giveBack(back)
	}
}

// Queues returns true: Admit may block for a round trip, which is not latency of the service.
func (s *Semaphore) Queues() bool { return true }

var _ spillway.Policy = (*Semaphore)(nil)
