package lock

import (
	"context"
	"errors"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
)

// Admit takes a permit of r.Key, or refuses r. It asks Redis once, for at most Timeout, and never waits for a permit. A
// request counts as one, whatever its cost. Admit allocates, and blocks for a round trip: put it behind the policies
// that decide locally.
//
// If Redis does not answer, Fallback decides. A request whose lease is lost continues, since it has no context of the
// Semaphore, and is counted in Stats.Lapsed.
func (s *Semaphore) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	p, err := s.try(ctx, nil, r.Key)
	if err == nil {
		return spillway.Ticket(p.serial), nil
	}
	switch refused := spillway.RejectionOf(err); {
	case call.Unanswered(err), errors.Is(err, ErrLeaseLost):
		if s.Options().Fallback == cluster.AllowAll {
			s.counts.byFallback.Add(1)
			return 0, nil
		}
		return 0, s.refuse(refusedRedis)
	case errors.Is(err, ErrClosed):
		return 0, s.refuse(refusedRedis)
	case refused != nil:
		return 0, refused
	}
	return 0, err
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
	s.giveBack(p.handBack())
}

// Queues returns true: Admit may block for a round trip, which is not latency of the service.
func (s *Semaphore) Queues() bool { return true }

var _ spillway.Policy = (*Semaphore)(nil)
