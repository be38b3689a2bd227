package cluster

import (
	"context"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
)

// A turn is what those who wait for tokens of one key in this process have in common: one of them at a time asks Redis, and
// they get their turn in the order in which they came.
type turn struct {
	taken chan struct{} // holds one element while somebody has the turn
	users int           // guarded by Limit.mu
}

const (
	// minSleep keeps one who waits from asking all the time, should Redis say that there will be more at once and not be right.
	minSleep = time.Millisecond
	// lostSleep does when Redis is lost and this process's share is too small: it waits for Redis then.
	lostSleep = 50 * time.Millisecond
)

// Wait takes n tokens of a key, and returns when it has them. It returns at once if n can never pass (a
// *[limiter.CostError]), if ctx would end before there are as many (a *[spillway.Rejection]), or if OnLoss is Closed and
// Redis gives no answer (also a *[spillway.Rejection]). If ctx ends while it waits, it returns ctx.Err().
//
// In one process those who wait for a key are served in the order in which they came, and only the first of them asks Redis.
// Between processes there is no order, and one who asks for many may be overtaken by those who ask for few.
func (l *Limit) Wait(ctx context.Context, key string, n int) error {
	if l.conn == nil {
		return errUnmade
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
		if r.Source == FromClosed {
			return l.rejection(&r)
		}
		if err := l.sleep(ctx, &r); err != nil {
			return err
		}
	}
}

// sleep waits until r says that there will be more, or returns an error if ctx ends before.
func (l *Limit) sleep(ctx context.Context, r *Result) error {
	wait := max(r.RetryAfter, minSleep)
	if r.Source == FromShare {
		wait = max(wait, lostSleep)
	}
	now := time.Now()
	if deadline, ok := ctx.Deadline(); ok && now.Add(wait).After(deadline) {
		return l.refusals[r.rule].deadline()
	}
	timer := time.NewTimer(min(wait, max(l.recheck, minSleep))) // another process may give some back, or reset the key
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *rejections) deadline() *spillway.Rejection {
	rej := r.build(limiter.ReasonDeadline, 0)
	return &rej
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
