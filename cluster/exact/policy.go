package exact

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
)

// Admit takes the cost of r from its Key, as [Limit.Take] does. It blocks for a round trip to Redis, and no longer than
// [Options.Timeout]. It does not block while the breaker is open, or while a refusal of the key is remembered. The
// error is a *[spillway.Rejection], or ctx.Err() if ctx ended first.
func (l *Limit) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	if l.conn == nil {
		return 0, call.ErrZero
	}
	n := max(r.Cost, 1)
	if r.Cost < 0 {
		n = r.Cost
	}
	for i, rule := range l.rules() {
		if n < 0 || int64(n) > rule.limit && !l.stored {
			l.counts.impossible.Add(1)
			return 0, l.refusals[i].Cost(int64(n))
		}
	}
	res, err := l.ask(ctx, r.Key, int64(n), allTokens)
	switch {
	case errors.Is(err, spillway.ErrRejected): // a stored rule can never admit that many
		return 0, l.refusals[0].Cost(int64(n))
	case err != nil:
		return 0, err
	case res.Allowed:
		return ticketOf(&res), nil
	}
	return 0, l.rejection(&res)
}

// rejection returns the rejection for a refused request.
func (l *Limit) rejection(r *Result) *spillway.Rejection {
	if r.Source == cluster.FromNobody {
		return l.lost.Unknown()
	}
	return l.refusals[r.rule].After(r.RetryAfter)
}

// Done gives the tokens of r back if r was [spillway.Refused]. That is one more call of Redis, which takes no longer
// than [Options.Timeout] and is not repeated if it fails. So put a Limit behind the policies that refuse often.
// Other outcomes do not concern this limit.
func (l *Limit) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	if res.Outcome != spillway.Refused || l.conn == nil {
		return
	}
	n := int64(max(r.Cost, 1))
	switch stamp := int64(t >> ticketShift); cluster.Source(t & (1<<ticketShift - 1)) {
	case cluster.FromRedis:
		_ = l.giveBack(context.Background(), r.Key, n, n, stamp) // if Redis is lost, the n tokens are too, until time returns them
	case cluster.FromDivide:
		l.shareBack(r.Key, n, stamp)
	}
}

// Queues returns true: Admit may block.
func (l *Limit) Queues() bool { return true }

// A Ticket holds the Source that admitted a request, and its stamp: µs since 1970 take 51 bits.
const ticketShift = 3

func ticketOf(r *Result) spillway.Ticket {
	return spillway.Ticket(r.stamp)<<ticketShift | spillway.Ticket(r.Source)
}

// Quota returns the remaining tokens of the key of r at now, for the RateLimit header fields of HTTP. It does not ask Redis: the
// figures come from the last answer for this key in this process, or describe an unused key. With several rules they
// describe the rule that decided; see [Limit.Quotas].
func (l *Limit) Quota(now time.Time, r spillway.Request) spillway.Quota {
	if l.conn == nil {
		return spillway.Quota{}
	}
	rule := 0
	if a := l.memory.recall(r.Key); a != nil {
		rule = a.rule
	}
	return l.quota(now, r, rule)
}

func (l *Limit) quota(now time.Time, r spillway.Request, i int) spillway.Quota {
	rule := l.rules()[i]
	a := l.memory.recall(r.Key)
	if a == nil {
		return spillway.Quota{Name: rule.name, Limit: rule.limit, Remaining: rule.limit, Window: rule.span()}
	}
	s := a.stateAt(now, i)
	return spillway.Quota{Name: rule.name, Limit: s.Limit, Remaining: s.Remaining, Window: rule.span(), Reset: s.NextIn}
}

// Quotas returns, for each rule in the order of the options, [Limit.Quota] of that rule alone: for header fields that
// name each rule.
func (l *Limit) Quotas() []func(now time.Time, r spillway.Request) spillway.Quota {
	quotas := make([]func(time.Time, spillway.Request) spillway.Quota, len(l.rules()))
	for i := range quotas {
		quotas[i] = func(now time.Time, r spillway.Request) spillway.Quota { return l.quota(now, r, i) }
	}
	return quotas
}

var _ spillway.Policy = (*Limit)(nil)
