package lease

import (
	"context"
	"math"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/lease/internal/machine"
	"github.com/spillway-go/spillway/limiter"
)

// The origins of tokens, as tickets: 0 for tokens that cannot be given back.
const (
	takenLocally spillway.Ticket = iota + 1
	takenFromPool
	takenAlone
)

// promptly is the number of requests to Redis after which the loop looks at a key at once.
const promptly = 4

// Admit takes the cost of r from its Key. It neither blocks nor allocates for a leased key. For another key it blocks
// for a round trip to Redis, and no longer than [Options.Timeout]. The error is a *[spillway.Rejection], or
// ctx.Err() if ctx ended first.
func (q *Limit) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	n := int64(r.Cost)
	if n == 0 {
		n = 1
	}
	if q.reject == nil {
		return 0, call.ErrZero
	}
	if n < 0 || n > q.burst() {
		return 0, q.reject.Cost(n)
	}
	now := q.at(r.Arrived)
	a, ticket := q.local(r.Key, now, n)
	if !a.decided {
		var err error
		if a, ticket, err = q.ask(ctx, r.Key, now, n); err != nil {
			return 0, err
		}
	}
	if a.ok {
		return ticket, nil
	}
	return 0, q.refusal(&a)
}

// An answer is a decision.
type answer struct {
	decided, ok bool
	wait        time.Duration  // negative if unknown
	from        machine.Source // FromNone if Redis decided
	err         error          // why Redis did not
}

// local decides by the lease, if there is one.
func (q *Limit) local(key string, now time.Duration, n int64) (answer, spillway.Ticket) {
	k := q.key(key)
	if k == nil || !k.local.Load() {
		return answer{}, 0
	}
	ok, wait, from := k.node.Bucket.Take(now, n)
	if from == machine.FromNone { // the lease has just been released
		return answer{}, 0
	}
	k.offered.Add(n)
	if !ok {
		k.refused.Add(n)
	}
	return answer{decided: true, ok: ok, wait: wait, from: from}, takenLocally
}

// ask takes unleased tokens in Redis.
func (q *Limit) ask(ctx context.Context, key string, now time.Duration, n int64) (answer, spillway.Ticket, error) {
	k := q.key(key)
	names, began := q.namesOf(k, key), q.now()
	if k == nil {
		k = q.late
	}
	k.offered.Add(n)
	q.tally.direct.Add(1)
	if k.direct.Add(1) == promptly && k != q.late {
		q.fresh.add(k)
	}
	reply, err := q.conn.Call(ctx, q.script, names, q.limit.Load().args.take(n)...)
	var t takeReply
	if err == nil {
		t, err = readTaken(reply)
	}
	if err != nil {
		if ctx.Err() != nil {
			k.refused.Add(n)
			return answer{}, 0, ctx.Err()
		}
		a, ticket := q.alone(k, now, n, err)
		return a, ticket, nil
	}
	k.left.Store(t.left)
	if !t.learning { // a table that is still learning does not know all nodes
		q.nodes.Store(int64(max(t.nodes, 1)))
	}
	if t.taken {
		return answer{decided: true, ok: true}, takenFromPool, nil
	}
	k.dry.Store(true)
	a := q.granted(ctx, k, began, n)
	if !a.decided {
		a = answer{decided: true, wait: t.wait}
	}
	if !a.ok {
		k.refused.Add(n)
	}
	return a, takenLocally, nil
}

// granted decides by a lease that this process got since it asked Redis for n tokens. Redis may have refused them only
// because it had just leased them to this process. If that grant is on its way, granted waits for it until the request
// has taken [Options.Timeout].
func (q *Limit) granted(ctx context.Context, k *keyState, began time.Duration, n int64) answer {
	if arrived := k.granting.Load(); arrived != nil && !k.local.Load() {
		timer := time.NewTimer(q.conn.Timeout - (q.now() - began))
		defer timer.Stop()
		select {
		case <-*arrived:
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	if !k.local.Load() {
		return answer{}
	}
	ok, wait, from := k.node.Bucket.Take(q.now(), n)
	return answer{decided: from != machine.FromNone, ok: ok, wait: wait, from: from}
}

// alone decides without Redis and without a lease.
func (q *Limit) alone(k *keyState, now time.Duration, n int64, err error) (answer, spillway.Ticket) {
	q.tally.lost.Add(1)
	ok, wait, from := k.node.Alone.Take(now, n)
	if !ok {
		k.refused.Add(n)
	}
	return answer{decided: true, ok: ok, wait: wait, from: from, err: err}, takenAlone
}

func (q *Limit) refusal(a *answer) *spillway.Rejection {
	if a.from == machine.FromClosed {
		return q.lost.Unknown()
	}
	return q.reject.After(a.wait)
}

// Done gives the tokens of r back if r was [spillway.Refused]: locally, or with one more call of Redis if Redis had
// decided. That call takes no longer than [Options.Timeout] and is not repeated. For other outcomes it does
// nothing.
func (q *Limit) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	if res.Outcome != spillway.Refused || q.reject == nil {
		return
	}
	n := int64(max(r.Cost, 1))
	k := q.key(r.Key)
	if t == takenFromPool {
		_, _ = q.conn.Call(context.Background(), q.script, q.namesOf(k, r.Key), q.limit.Load().args.take(-n)...) // if Redis is lost, so are n tokens
		return
	}
	if k == nil {
		k = q.late
	}
	switch t {
	case takenLocally:
		k.node.Bucket.GiveBack(q.at(r.Arrived), n)
	case takenAlone:
		k.node.Alone.GiveBack(q.at(r.Arrived), n)
	}
}

// namesOf returns the names in Redis of a key, which may have no place in the table.
func (q *Limit) namesOf(k *keyState, key string) []string {
	if k != nil {
		return k.names
	}
	return q.names.of(key)
}

// Queues returns true: Admit may block.
func (q *Limit) Queues() bool { return true }

// Take takes n tokens of a key, or none. Neither a shortage of tokens nor a Redis outage is an error; see
// Result.Source. The error is a *[limiter.CostError] if n is negative or can never pass, or ctx.Err(). It blocks as
// Admit does. Taking 0 is always allowed.
func (q *Limit) Take(ctx context.Context, key string, n int) (cluster.Result, error) {
	out := cluster.Result{State: limiter.State{Limit: q.burst()}, Rule: q.name}
	if q.reject == nil {
		return out, call.ErrZero
	}
	if n < 0 || int64(n) > out.Limit {
		return out, call.CostError(q.name, n, out.Limit)
	}
	if n == 0 {
		out.Allowed = true
		return out, nil
	}
	now := q.now()
	a, _ := q.local(key, now, int64(n))
	if !a.decided {
		var err error
		if a, _, err = q.ask(ctx, key, now, int64(n)); err != nil {
			return out, err
		}
	}
	out.Allowed, out.Err, out.Source = a.ok, a.err, sourceOf(a.from)
	if a.ok {
		out.Taken = int64(n)
	} else {
		out.RetryAfter = max(a.wait, 0)
	}
	left := q.figures(key, now)
	out.Limit, out.Remaining, out.NextIn = left.Limit, left.Remaining, left.Reset
	return out, nil
}

func sourceOf(from machine.Source) cluster.Source {
	switch from {
	case machine.FromLease:
		return cluster.FromLease
	case machine.FromHold:
		return cluster.FromHold
	case machine.FromShare:
		return cluster.FromDivide
	case machine.FromOpen:
		return cluster.FromNobody
	case machine.FromClosed:
		return cluster.FromNobody
	}
	return cluster.FromRedis
}

// Quota returns the remaining tokens of the key of r at now, for the RateLimit header fields of HTTP. It does not ask Redis: the
// figures come from this process's share, or from the last answer of Redis.
func (q *Limit) Quota(now time.Time, r spillway.Request) spillway.Quota {
	return q.figures(r.Key, q.at(now))
}

func (q *Limit) figures(key string, now time.Duration) spillway.Quota {
	cfg := q.config()
	limit := int64(cfg.Burst)
	window := time.Duration(min(cfg.Burst/max(cfg.Rate, math.SmallestNonzeroFloat64)*1e9, float64(maxGrace)))
	figures := spillway.Quota{Name: q.name, Limit: limit, Remaining: limit, Window: window}
	k := q.known(key)
	if k == nil {
		return figures
	}
	remaining := min(max(k.left.Load(), 0), limit)
	rate := cfg.Rate
	if k.local.Load() {
		b := &k.node.Bucket
		if t := b.Terms(now); t.Rate > 0 {
			rate = t.Rate
			part := 1 + cfg.Burst*rate/cfg.Rate
			remaining = min(max(int64(math.Floor(b.Tokens(now)/part*cfg.Burst)), 0), limit)
		} else {
			remaining = 0
		}
	}
	if remaining < limit {
		figures.Reset = time.Duration(1e9 / rate)
	}
	figures.Remaining = remaining
	return figures
}

var _ spillway.Policy = (*Limit)(nil)
