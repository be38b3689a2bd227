package limiter

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/rejections"
	"github.com/spillway-go/spillway/internal/waitlist"
)

// enter takes n places for a call that arrived at now, and waits for them if necessary.
func (q *queue) enter(ctx context.Context, now, n int64, r *spillway.Request) error {
	q.mu.Lock()
	switch {
	case n < 0 || n > q.seats.limit:
		q.counts.impossible++
		q.mu.Unlock()
		return q.reject.Cost(n)
	case q.seats.tryNow(n, r.Priority):
		q.counts.admitted++
		q.mu.Unlock()
		return nil
	}
	if err := ctx.Err(); err != nil {
		q.counts.cancelled++
		q.mu.Unlock()
		return err
	}
	left := r.Timeout
	if left == 0 {
		left = patience(ctx, readClock())
	}
	g, wait, verdict := q.seats.enqueue(now, waitlist.Guest{N: n, Priority: r.Priority, Key: r.Key}, int64(left))
	q.counts.note(verdict)
	q.mu.Unlock()
	if verdict != waitlist.Queued {
		return q.other[reasonOf(verdict)]
	}
	return q.await(ctx, g, now, time.Duration(wait))
}

// await blocks until g, which arrived at now, has its places or leaves.
func (q *queue) await(ctx context.Context, g *waitlist.Guest, now int64, wait time.Duration) error {
	c := newClock()
	timer := time.NewTimer(wait) //nolint:forbidigo // the shell that blocks
	defer timer.Stop()
	var gaveUp error
	select {
	case <-g.Ready:
	case <-timer.C:
		gaveUp = q.other[rejections.Wait]
	case <-ctx.Done():
		gaveUp = ctx.Err()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	took := c.elapsed()
	switch {
	case g.Fate == waitlist.Ousted:
		q.counts.ousted++
		q.counts.refusedAfter.Record(took)
		return q.other[rejections.Ousted]
	case g.Fate == waitlist.Large:
		q.counts.impossible++
		return q.reject.Cost(g.N)
	case g.Fate == waitlist.Runs && ctx.Err() == nil: // in time, even if the timer fired before the lock was free
		q.counts.admitted++
		q.counts.waited++
		q.counts.waits.Record(took)
		return nil
	}
	if err := ctx.Err(); err != nil {
		gaveUp = err
	}
	q.seats.leave(now+int64(took), g)
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
	if n > q.seats.inFlight {
		panic("limiter: Queue: released more than was acquired")
	}
	q.seats.release(now, n)
}

// note counts a request that may not wait.
func (c *queueCounts) note(v waitlist.Verdict) {
	switch v {
	case waitlist.Full:
		c.full++
	case waitlist.TooLong:
		c.late++
	case waitlist.TooLate:
		c.tooLate++
	}
}

func reasonOf(v waitlist.Verdict) string {
	switch v {
	case waitlist.TooLong:
		return rejections.Wait
	case waitlist.TooLate:
		return rejections.Deadline
	}
	return rejections.Full
}
