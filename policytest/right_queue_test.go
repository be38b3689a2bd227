package policytest

import (
	"context"
	"sync"

	"github.com/spillway-go/spillway"
)

// A queue has slots and lets those wait, first come first served, that find none.
type queue struct {
	mu      sync.Mutex
	free    int
	room    int // in the queue
	waiting []chan struct{}
}

func (*queue) Queues() bool { return true }

func (q *queue) Admit(ctx context.Context, _ spillway.Request) (spillway.Ticket, error) {
	q.mu.Lock()
	if q.free > 0 {
		q.free--
		q.mu.Unlock()
		return 0, nil
	}
	if len(q.waiting) >= q.room {
		q.mu.Unlock()
		return 0, refusal
	}
	granted := make(chan struct{}, 1)
	q.waiting = append(q.waiting, granted)
	q.mu.Unlock()
	select {
	case <-granted:
		return 0, nil
	case <-ctx.Done():
		q.leave(granted)
		return 0, ctx.Err()
	}
}

// leave takes granted out of the queue, or hands its slot on if the grant crossed the leaving.
func (q *queue) leave(granted chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, w := range q.waiting {
		if w == granted {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			return
		}
	}
	q.release()
}

func (q *queue) Done(spillway.Request, spillway.Ticket, spillway.Result) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.release()
}

func (q *queue) release() {
	if len(q.waiting) == 0 {
		q.free++
		return
	}
	q.waiting[0] <- struct{}{}
	q.waiting = q.waiting[1:]
}
