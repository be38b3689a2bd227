package spillway

import (
	"context"

	"github.com/spillway-go/spillway/stats"
)

// Shadow returns a Policy that asks p about every request, counts what p would have refused, and refuses nothing: a dry
// run on live traffic. A request that p refused runs unseen by p, so what p learns is what it would have let in. A [Queuer]
// is no fit: its requests would wait for an answer that does not matter.
func Shadow(p Policy) *ShadowPolicy {
	if p == nil {
		panic("spillway: Shadow: policy is nil")
	}
	return &ShadowPolicy{inner: p}
}

// A ShadowPolicy runs another [Policy] without letting it refuse. It is made by [Shadow] and safe for concurrent use.
type ShadowPolicy struct {
	inner     Policy
	admitted  stats.Counter
	cancelled stats.Counter
	refusals  tally
}

// ShadowStats is a snapshot of what a [ShadowPolicy] has seen.
type ShadowStats struct {
	Admitted    int64     // admitted by the policy in the shadow
	WouldRefuse int64     // admitted although that policy refused: the sum of Refusals
	Cancelled   int64     // refused without a *Rejection: the request's ctx ended in its queue
	Refusals    []Refusal // by reason; Index is always 0
}

// Admit asks the policy in the shadow and admits whatever it says.
func (s *ShadowPolicy) Admit(ctx context.Context, r Request) (Ticket, error) {
	t, err := s.inner.Admit(ctx, r)
	if err == nil {
		s.admitted.Add(1)
		return t, nil
	}
	if rej := rejectionIn(err); rej != nil {
		s.refusals.add(0, rej.Policy, rej.Reason)
	} else {
		s.cancelled.Add(1)
	}
	return noTicket, nil
}

// Done tells the policy in the shadow how a request went that it had admitted.
func (s *ShadowPolicy) Done(r Request, t Ticket, res Result) {
	if t != noTicket {
		s.inner.Done(r, t, res)
	}
}

// Stats returns a snapshot of the counts. It may be called at any time.
func (s *ShadowPolicy) Stats() ShadowStats {
	out := ShadowStats{Admitted: s.admitted.Value(), Cancelled: s.cancelled.Value(), Refusals: s.refusals.list()}
	for _, r := range out.Refusals {
		out.WouldRefuse += r.Count
	}
	return out
}
