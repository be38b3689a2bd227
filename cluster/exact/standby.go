package exact

import (
	"context"
	"time"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/limiter"
)

// maxSharedKeys bounds the keys whose share a process keeps.
const maxSharedKeys = 1 << 16

// A standby decides while Redis does not answer.
type standby struct {
	choice cluster.Fallback
	nodes  int
	shares []*limiter.Keyed // one for each rule
}

func (f *standby) make(choice cluster.Fallback, nodes int, rules []rule) error {
	f.choice, f.nodes = choice, nodes
	if choice != cluster.Divide {
		return nil
	}
	for _, r := range rules {
		k, err := limiter.NewKeyed(r.local(nodes), &limiter.KeyedOptions{MaxKeys: maxSharedKeys})
		if err != nil {
			return err
		}
		f.shares = append(f.shares, k)
	}
	return nil
}

// change applies new rules, which are valid and of the same kinds, to the shares.
func (f *standby) change(rules []rule) error {
	if err := f.check(rules); err != nil {
		return err
	}
	for i, k := range f.shares {
		if err := k.Tune(rules[i].local(f.nodes)); err != nil {
			return err
		}
	}
	return nil
}

// check returns the error of change, and changes nothing.
func (f *standby) check(rules []rule) error {
	for i, k := range f.shares {
		if _, err := k.Check(rules[i].local(f.nodes)); err != nil {
			return err
		}
	}
	return nil
}

// onLoss decides instead of Redis, unless the caller gave up.
func (l *Limit) onLoss(ctx context.Context, key string, n int64, how string, err error) (Result, error) {
	if !call.Unanswered(err) {
		return Result{}, err
	}
	l.counts.lost.Add(1)
	var r Result
	r.Err, r.Rule, r.Limit = err, l.rules()[0].name, l.rules()[0].limit
	switch l.loss.choice {
	case cluster.AllowAll:
		r.Source, r.Allowed, r.Taken, r.Remaining = cluster.FromNobody, true, n, r.Limit
	case cluster.RefuseAll:
		r.Source = cluster.FromNobody
	default:
		r.Source = cluster.FromDivide
		l.share(key, n, how, &r)
	}
	if n > 0 {
		l.counts.decided(&r)
	}
	return r, ctx.Err()
}

// share takes up to n tokens from this process's part of all rules, or none.
func (l *Limit) share(key string, n int64, how string, r *Result) {
	r.stamp = time.Since(l.conn.Base).Microseconds() // a Ticket has no room for more
	now := l.stampedAt(r.stamp)
	key, r.Taken = call.ShortKey(key), n
	if how == someTokens {
		for _, k := range l.loss.shares {
			r.Taken = min(r.Taken, k.PeekAt(now, key).Remaining)
		}
	}
	held := make([]limiter.Reservation, 0, maxRules)
	for i, k := range l.loss.shares {
		res, err := k.ReserveAt(now, key, int(r.Taken), 0)
		if err != nil {
			for j := range held {
				held[j].CancelAt(now)
			}
			r.Taken, r.rule = 0, i
			r.RetryAfter = call.RetryAfter(err)
			break
		}
		held = append(held, res)
	}
	r.Allowed = r.Taken == n
	r.State, r.Rule = l.loss.shares[r.rule].PeekAt(now, key), l.rules()[r.rule].name
}

// shareBack returns tokens that were taken with stamp to this process's part, unless they have come back with time.
func (l *Limit) shareBack(key string, n, stamp int64) {
	key = call.ShortKey(key)
	for _, k := range l.loss.shares {
		k.RefundAt(l.stampedAt(stamp), key, int(n))
	}
}

// stampedAt returns the time of a stamp of this process.
func (l *Limit) stampedAt(stamp int64) time.Time {
	return l.conn.Base.Add(time.Duration(stamp) * time.Microsecond)
}
