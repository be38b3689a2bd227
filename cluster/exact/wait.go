package exact

import (
	"context"
	"time"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/internal/rejections"
)

// A turn orders the callers of Wait for one key in this process: one at a time asks Redis, in the order of their
// arrival.
type turn struct {
	taken chan struct{} // holds one element while a caller has the turn
	users int           // guarded by Limit.mu
}

const (
	// minSleep is the shortest pause between two calls of a waiting caller, in case Redis promises tokens at once and
	// is wrong.
	minSleep = time.Millisecond
	// lostSleep is that pause while Redis is lost and the share of this process is too small: then the caller waits for Redis.
	lostSleep = 50 * time.Millisecond
)

// Wait takes n tokens of a key, and returns when it has them. It returns a *[limiter.CostError] at once if n can never
// pass. It returns a *[spillway.Rejection] at once if ctx would end too early, or if Fallback is RefuseAll and Redis does
// not answer. If ctx ends while it waits, it returns ctx.Err().
//
// In one process, callers that wait for a key are served in the order of their arrival, and only the first of them asks
// Redis. Between processes there is no order, and a caller that asks for many tokens may be overtaken by callers that
// ask for few.
func (l *Limit) Wait(ctx context.Context, key string, n int) error {
	if l.conn == nil {
		return call.ErrZero
	}
	if err := l.cost(n, allTokens); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil || n == 0 {
		return err
	}
	t := l.join(key)
	defer l.leave(key, t)
	select {
	case t.taken <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-t.taken }()
	for {
		r, err := l.ask(ctx, key, int64(n), allTokens)
		if err != nil || r.Allowed {
			return err
		}
		if r.Source == cluster.FromNobody {
			return l.rejection(&r)
		}
		if err := l.sleep(ctx, &r); err != nil {
			return err
		}
	}
}

// sleep waits until r says that there will be more tokens, or returns an error if ctx ends before.
func (l *Limit) sleep(ctx context.Context, r *Result) error {
	wait := max(r.RetryAfter, minSleep)
	if r.Source == cluster.FromDivide {
		wait = max(wait, lostSleep)
	}
	now := time.Now()
	if deadline, ok := ctx.Deadline(); ok && now.Add(wait).After(deadline) {
		rej := l.refusals[r.rule].Build(rejections.Deadline, 0)
		return &rej
	}
	timer := time.NewTimer(min(wait, max(l.cacheTTL, minSleep))) // another process may give some back, or reset the key
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Limit) join(key string) *turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.turns[key]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		l.turns[key] = t
	}
	t.users++
	return t
}

func (l *Limit) leave(key string, t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(l.turns, key)
	}
}
