package cluster

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway"
)

// runAll runs a script many times in one pipeline, with one deadline and one judgement by the breaker. Each command was made by
// [script.command], and may have run if its error does not say otherwise.
func (c *conn) runAll(s *script, commands [][]any) (replies []any, errs []error) {
	replies, errs = make([]any, len(commands)), make([]error, len(commands))
	fail := func(err error) ([]any, []error) {
		for i := range errs {
			errs[i] = err
		}
		return replies, errs
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	r := spillway.Request{Arrived: time.Now()}
	ticket, err := c.brk.Admit(ctx, r)
	if err != nil {
		return fail(&RedisError{Reason: ReasonBreaker, Err: err})
	}
	outcome := spillway.Failure
	defer func() { c.brk.Done(r, ticket, spillway.Result{Outcome: outcome, Latency: time.Since(r.Arrived)}) }()
	pipes, ok := c.client.(interface{ Pipeline() redis.Pipeliner })
	if !ok {
		pipes = c.raw
	}
	again := c.pipeline(ctx, pipes, commands, replies, errs, nil)
	if len(again) > 0 {
		for _, i := range again {
			commands[i] = s.withSource(commands[i])
		}
		c.pipeline(ctx, pipes, commands, replies, errs, again)
	}
	for i, err := range errs {
		if err == nil {
			outcome = spillway.Success
			continue
		}
		_, errs[i] = c.judge(ctx, r.Arrived, err)
	}
	return replies, errs
}

// pipeline runs those commands that only lists, or all, and returns those whose script the server does not know.
func (c *conn) pipeline(
	ctx context.Context, pipes interface{ Pipeline() redis.Pipeliner }, commands [][]any, replies []any, errs []error, only []int,
) (again []int) {
	pipe := pipes.Pipeline()
	cmds := make([]*redis.Cmd, len(commands))
	for i, command := range commands {
		if only == nil {
			cmds[i] = pipe.Do(ctx, command...)
		}
	}
	for _, i := range only {
		cmds[i] = pipe.Do(ctx, commands[i]...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, cmd := range cmds {
		if cmd == nil {
			continue
		}
		replies[i], errs[i] = cmd.Result()
		if errs[i] != nil && redis.HasErrorPrefix(errs[i], "NOSCRIPT") {
			again = append(again, i)
		}
	}
	return again
}
