package policytest

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-go/spillway"
)

// A tamperedQueue is a queue with another Admit.
type tamperedQueue struct {
	*queue
	admit func(context.Context, spillway.Request) (spillway.Ticket, error)
}

func (q *tamperedQueue) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	return q.admit(ctx, r)
}

var errGone = errors.New("the caller has gone")

func brokenQueues() []brokenPolicy {
	queued := func(admit func(*queue, context.Context, spillway.Request) (spillway.Ticket, error)) func() spillway.Policy {
		return func() spillway.Policy {
			q := &queue{free: 4, room: 6}
			return &tamperedQueue{q, func(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
				return admit(q, ctx, r)
			}}
		}
	}
	return []brokenPolicy{
		{
			name: "waits on when the caller has gone",
			newPolicy: queued(func(q *queue, _ context.Context, r spillway.Request) (spillway.Ticket, error) {
				return q.Admit(context.Background(), r)
			}),
			fails: []string{"queue"}, says: "still waits after its ctx was cancelled",
		},
		{
			name: "waits although the caller had gone before",
			newPolicy: queued(func(q *queue, ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
				if ctx.Err() != nil {
					time.Sleep(time.Second) // the fault to be found, in virtual time
				}
				return q.Admit(ctx, r)
			}),
			fails: []string{"queue"}, says: "Admit waits although its ctx had been cancelled before",
		},
		{
			name: "waits beyond the deadline",
			newPolicy: queued(func(q *queue, ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
				t, err := q.Admit(ctx, r)
				if ctx.Err() == context.DeadlineExceeded {
					time.Sleep(time.Millisecond) // the fault to be found, in virtual time
				}
				return t, err
			}),
			fails: []string{"queue"}, says: "Admit still waits after the deadline of its ctx",
		},
		{
			name: "has an error of its own for a deadline",
			newPolicy: queued(func(q *queue, ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
				t, err := q.Admit(ctx, r)
				if err != nil && ctx.Err() == context.DeadlineExceeded {
					err = errGone
				}
				return t, err
			}),
			fails: []string{"queue"}, says: "want ctx.Err(), which is context deadline exceeded",
		},
		{
			name: "waits a little when the caller has gone",
			newPolicy: queued(func(q *queue, ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
				t, err := q.Admit(ctx, r)
				if err != nil && ctx.Err() != nil {
					time.Sleep(time.Millisecond) // the fault to be found, in virtual time
				}
				return t, err
			}),
			fails: []string{"queue"}, says: "still waits after its ctx was cancelled",
		},
		{
			name: "has an error of its own for who has gone",
			newPolicy: queued(func(q *queue, ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
				t, err := q.Admit(ctx, r)
				if err != nil && ctx.Err() != nil {
					err = errGone
				}
				return t, err
			}),
			fails: []string{"queue"}, says: "want ctx.Err(), which is context canceled",
		},
		{
			name: "keeps the place of who has gone",
			newPolicy: queued(func(q *queue, ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
				admitted := make(chan error, 1)
				go func() {
					_, err := q.Admit(context.Background(), r)
					admitted <- err
				}()
				select {
				case err := <-admitted:
					return 0, err
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			}),
			fails: []string{"queue"}, says: "a request whose ctx was cancelled in the queue, from 2026",
		},
		{
			name: "loses the slot when a grant crosses the leaving",
			newPolicy: func() spillway.Policy {
				q := &queue{free: 4, room: 6}
				return &tamperedQueue{q, q.admitCarelessly}
			},
			fails: []string{"queue"}, says: "requests that queued, left and were granted at random",
		},
		{
			name: "wakes nobody",
			newPolicy: func() spillway.Policy {
				return &sleepyQueue{queue{free: 4, room: 6}}
			},
			fails: []string{"queue"}, says: "a request waits for ever although all requests before it have ended",
		},
	}
}

// admitCarelessly is Admit of a queue that forgets the grant that crosses its leaving.
func (q *queue) admitCarelessly(ctx context.Context, _ spillway.Request) (spillway.Ticket, error) {
	q.mu.Lock()
	if q.free > 0 {
		q.free--
		q.mu.Unlock()
		return 0, nil
	}
	granted := make(chan struct{}, 1)
	q.waiting = append(q.waiting, granted)
	q.mu.Unlock()
	select {
	case <-granted:
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return 0, nil
	case <-ctx.Done():
		q.mu.Lock()
		defer q.mu.Unlock()
		for i, w := range q.waiting {
			if w == granted {
				q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			}
		}
		return 0, ctx.Err()
	}
}

// A sleepyQueue gives a slot back without granting it to who waits.
type sleepyQueue struct{ queue }

func (q *sleepyQueue) Done(spillway.Request, spillway.Ticket, spillway.Result) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free++
}
