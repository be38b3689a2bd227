package limiter

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/rejections"
)

// enter takes n places for a call that arrived at now, and waits for them if necessary.
func (q *queue) enter(ctx context.Context, now, n int64, p spillway.Priority) error {
	q.mu.Lock()
	switch {
	case n < 0 || n > q.list.limit:
		q.counts.impossible++
		q.mu.Unlock()
		return q.reject.Cost(n)
	case q.list.tryNow(now, n, p):
		q.counts.admitted++
		q.mu.Unlock()
		return nil
	}
	if err := ctx.Err(); err != nil {
		q.counts.cancelled++
		q.mu.Unlock()
		return err
	}
	g := &guest{n: n, priority: p, ready: make(chan struct{})}
	wait, ok := q.list.enqueue(now, g)
	if !ok {
		q.counts.full++
		q.mu.Unlock()
		return q.other[rejections.Full]
	}
	q.mu.Unlock()
	return q.await(ctx, g, now, time.Duration(wait))
}

// await blocks until g, which arrived at now, has its places or leaves.
func (q *queue) await(ctx context.Context, g *guest, now int64, wait time.Duration) error {
	c := newClock()
	timer := time.NewTimer(wait) //nolint:forbidigo // the shell that blocks
	defer timer.Stop()
	var gaveUp error
	select {
	case <-g.ready:
	case <-timer.C:
		gaveUp = q.other[rejections.Wait]
	case <-ctx.Done():
		gaveUp = ctx.Err()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	took := c.elapsed()
	switch {
	case g.fate == ousted:
		q.counts.ousted++
		q.counts.refusedAfter.Record(took)
		return q.other[rejections.Ousted]
	case g.fate == large:
		q.counts.impossible++
		return q.reject.Cost(g.n)
	case g.fate == runs && ctx.Err() == nil: // in time, even if the timer fired before the lock was free
		q.counts.admitted++
		q.counts.waited++
		q.counts.waits.Record(took)
		return nil
	}
	if err := ctx.Err(); err != nil {
		gaveUp = err
	}
	q.list.leave(now+int64(took), g)
	if errors.Is(gaveUp, q.other[rejections.Wait]) {
		q.counts.late++
		q.counts.refusedAfter.Record(took)
	} else {
		q.counts.cancelled++
	}
	return gaveUp
}

func (q *queue) release(now, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n > q.list.inFlight {
		panic("limiter: Queue: released more than was acquired")
	}
	q.list.release(now, n)
}
