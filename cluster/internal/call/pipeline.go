package call

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway"
)

// RunAll runs a script many times in one pipeline, with one deadline and one outcome for the breaker. Each command was
// made by [Script.Command], and may have run unless its error says otherwise.
func (c *Conn) RunAll(ctx context.Context, s *Script, commands [][]any) (replies []any, errs []error) {
	commands = slices.Clone(commands) // the caller may continue before the client does
	err := c.admitted(ctx, func(began time.Time) (spillway.Outcome, error) {
		f := newFlight(ctx, c, began)
		if !f.run(ctx, func(ctx context.Context) { f.sendAll(ctx, s, commands) }) || f.errs == nil {
			return f.judge(ctx)
		}
		replies, errs = f.replies, f.errs
		outcome := spillway.Failure
		if f.stale {
			outcome = spillway.Ignored
		}
		for i, err := range errs {
			if err == nil {
				outcome = spillway.Success
				continue
			}
			_, errs[i] = f.verdict(ctx, err)
		}
		return outcome, nil
	})
	if err != nil {
		replies, errs = make([]any, len(commands)), make([]error, len(commands))
		for i := range errs {
			errs[i] = err
		}
	}
	return replies, errs
}

// sendAll sends the commands. Commands whose server does not know the script are sent a second time, with its source.
func (f *flight) sendAll(ctx context.Context, s *Script, commands [][]any) {
	replies, errs := make([]any, len(commands)), make([]error, len(commands))
	again := f.pipeline(ctx, commands, noScript, replies, errs, nil)
	if len(again) > 0 && f.sent.Load() != givenUp {
		for _, i := range again {
			s.withSource(commands[i])
		}
		f.pipeline(ctx, commands, emptyScript, replies, errs, again)
	}
	f.replies, f.errs, f.err = replies, errs, errs[0]
	for _, err := range errs {
		if err == nil || isReply(err) {
			f.err = err // one answer proves that Redis is there
		}
	}
}

// pipeline runs the commands listed in only, or all of them, and returns those whose script the server does not know.
func (f *flight) pipeline(ctx context.Context, commands [][]any, void string, replies []any, errs []error, only []int) (again []int) {
	if only == nil {
		only = make([]int, len(commands))
		for i := range only {
			only[i] = i
		}
	}
	pipe := f.conn.Client.Pipeline()
	cmds := make([]onceCmd, len(only))
	for i, at := range only {
		cmds[i] = onceCmd{redis.NewCmd(ctx, f.mark(commands[at], void)...)}
		_ = pipe.Process(ctx, cmds[i])
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, at := range only {
		replies[at], errs[at] = cmds[i].Result()
		if errs[at] != nil && redis.HasErrorPrefix(errs[at], "NOSCRIPT") {
			again = append(again, at)
		}
	}
	return again
}
