package exact

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-go/spillway/cluster/internal/call"
)

// A refund holds tokens of a key to give back.
type refund struct {
	key      string
	n, stamp int64
}

// giveAllBack gives back the tokens of many keys, in pipelines. The error counts the tokens that it could not give
// back.
func (l *Limit) giveAllBack(ctx context.Context, refunds []refund) error {
	var mu sync.Mutex
	var lost int64
	var keys int
	var why error
	call.Pipelines(refunds, func(part []refund) {
		for i, err := range l.giveSomeBack(ctx, part) {
			if err != nil {
				mu.Lock()
				lost, keys, why = lost+part[i].n, keys+1, err
				mu.Unlock()
			}
		}
	})
	if why != nil {
		return fmt.Errorf("exact: %d tokens of %d keys were not given back: %w", lost, keys, why)
	}
	return nil
}

// giveSomeBack gives back tokens in one pipeline, and returns an error for each refund that failed. If the periods of a
// calendar differed from the server's, it tries a second time.
func (l *Limit) giveSomeBack(ctx context.Context, refunds []refund) []error {
	out := make([]error, len(refunds))
	todo := make([]int, len(refunds))
	for i := range todo {
		todo[i] = i
	}
	for range 3 {
		commands, now := make([][]any, len(todo)), time.Now()
		for i, at := range todo {
			r := refunds[at]
			commands[i] = l.giving.Command(l.keys(r.key), l.arguments(now, r.n, giveBack, r.stamp, r.n))
		}
		replies, errs := l.conn.RunAll(ctx, l.giving, commands)
		var again []int
		for i, at := range todo {
			reply, err := []int64(nil), errs[i]
			if err == nil {
				reply, err = call.Integers(replies[i])
			}
			if out[at] = err; err != nil {
				continue
			}
			if len(reply) == 2 && reply[1] == elsewhere {
				l.clock.learn(reply[0], now)
				out[at] = errRestless
				again = append(again, at)
				continue
			}
			l.memory.forget(refunds[at].key)
			l.counts.returned.Add(1)
		}
		if todo = again; len(todo) == 0 {
			break
		}
	}
	return out
}
