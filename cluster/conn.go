package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
)

// DefaultTimeout is how long a call of Redis may take: hundreds of round trips within a data centre, and yet less than a
// request should spend on being told that it may run.
const DefaultTimeout = 100 * time.Millisecond

// maxTimeout bounds the time of a call.
const maxTimeout = time.Minute

// connOptions are what the options of everything in this package have in common.
type connOptions struct {
	kind    string // of what is made, for errors: "Limit"
	client  redis.UniversalClient
	timeout time.Duration    // if 0, DefaultTimeout
	breaker *breaker.Options // if nil, defaultBreaker
}

// A conn is a way to Redis that takes a bounded time: every call has a deadline of its own, a breaker keeps calls from a Redis
// that does not answer, and nothing is sent a second time unless Redis said that it did not run it. All methods may be
// called concurrently; none takes a lock during a call. It owns no goroutine.
type conn struct {
	client  processor
	raw     redis.UniversalClient // of the user, for what is no script
	timeout time.Duration
	brk     *breaker.Breaker
}

// A processor is the part of a client that runs one command.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// defaultBreaker opens for short times, since finding out whether Redis is back costs one call.
func defaultBreaker() *breaker.Options {
	return &breaker.Options{Consecutive: 5, OpenFor: 250 * time.Millisecond, MaxOpen: 4 * time.Second, Probes: 1}
}

// newConn returns a conn, and does not touch the network. The error names the option that cannot be right.
func newConn(o connOptions) (*conn, error) {
	c := &conn{raw: o.client, timeout: cmp.Or(o.timeout, DefaultTimeout)}
	if c.timeout < time.Millisecond || c.timeout > maxTimeout {
		return nil, fmt.Errorf("cluster: %s: Timeout must be in 1ms..%v, got %v", o.kind, maxTimeout, o.timeout)
	}
	if err := c.adopt(o.kind, o.client); err != nil {
		return nil, err
	}
	opts := o.breaker
	if opts == nil {
		opts = defaultBreaker()
	}
	brk, err := breaker.New(opts)
	if err != nil {
		return nil, fmt.Errorf("cluster: %s: Breaker: %w", o.kind, err)
	}
	c.brk = brk
	return c, nil
}

// adopt makes sure that a deadline reaches the sockets of the client.
func (c *conn) adopt(kind string, client redis.UniversalClient) error {
	obeys := true
	c.client = client
	switch cl := client.(type) {
	case nil:
		return fmt.Errorf("cluster: %s: Client must be set, got nil", kind)
	case *redis.Client:
		if !cl.Options().ContextTimeoutEnabled {
			c.client = cl.WithTimeout(c.timeout) // on the same connections
		}
	case *redis.ClusterClient:
		obeys = cl.Options().ContextTimeoutEnabled
	case *redis.Ring:
		obeys = cl.Options().ContextTimeoutEnabled
	}
	if !obeys {
		return fmt.Errorf("cluster: %s: Client must be made with ContextTimeoutEnabled, got a %T that ignores deadlines", kind, client)
	}
	return nil
}

// A onceCmd is a command that the client does not send again when the answer fails to come: Redis may have run it.
// Redirections are followed, since they say that it was not run.
type onceCmd struct{ *redis.Cmd }

// NoRetry tells the client so, whatever its MaxRetries.
func (onceCmd) NoRetry() bool { return true }

// run runs a script and returns the integers that it returns. An error is a *[RedisError], or ctx.Err() if ctx ended first.
func (c *conn) run(ctx context.Context, s *script, keys []string, args ...any) ([]int64, error) {
	reply, err := c.call(ctx, s, keys, args...)
	if err != nil {
		return nil, err
	}
	items, ok := reply.([]any)
	if !ok {
		return nil, &RedisError{Reason: ReasonScript, Err: fmt.Errorf("want an array, got %T", reply)}
	}
	ints := make([]int64, len(items))
	for i, item := range items {
		if ints[i], ok = item.(int64); !ok {
			return nil, &RedisError{Reason: ReasonScript, Err: fmt.Errorf("want integers, got %T", item)}
		}
	}
	return ints, nil
}

// call runs a script and returns its reply as the client decodes it: int64, string, nil, or []any of these.
func (c *conn) call(ctx context.Context, s *script, keys []string, args ...any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := spillway.Request{Arrived: time.Now()}
	ticket, err := c.brk.Admit(ctx, r)
	if err != nil {
		return nil, &RedisError{Reason: ReasonBreaker, Err: err}
	}
	// Panics of the client's hooks must not leave a probe of the breaker under way.
	outcome := spillway.Failure
	defer func() { c.brk.Done(r, ticket, spillway.Result{Outcome: outcome, Latency: time.Since(r.Arrived)}) }()

	own, cancel := context.WithDeadline(ctx, r.Arrived.Add(c.timeout))
	defer cancel()
	reply, err := c.send(own, s, s.command(keys, args))
	if err == nil {
		outcome = spillway.Success
		return reply, nil
	}
	outcome, err = c.judge(ctx, r.Arrived, err)
	return nil, err
}

// send runs a script, and sends its source if the server does not know it.
func (c *conn) send(ctx context.Context, s *script, command []any) (any, error) {
	cmd := onceCmd{redis.NewCmd(ctx, command...)}
	err := c.client.Process(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = onceCmd{redis.NewCmd(ctx, s.withSource(command)...)}
		err = c.client.Process(ctx, cmd)
	}
	if errors.Is(err, redis.Nil) {
		return nil, nil //nolint:nilnil // it is what the script returned
	}
	if err != nil {
		return nil, err
	}
	return cmd.Result()
}

// judge turns an error of the client into one of this package, and says what it tells of Redis.
func (c *conn) judge(ctx context.Context, began time.Time, err error) (spillway.Outcome, error) {
	reason := reasonOf(err)
	if reason == ReasonType {
		return spillway.Success, &RedisError{Reason: reason, Err: err} // a matter of one key
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return spillway.Ignored, ctx.Err()
	}
	if deadline, ok := ctx.Deadline(); ok && reason == ReasonTimeout && !deadline.After(began.Add(c.timeout)) {
		// The caller had less time than a call may take. If it was most of that, Redis is to blame none the less.
		outcome := spillway.Ignored
		if deadline.Sub(began) >= c.timeout/4 {
			outcome = spillway.Dropped
		}
		return outcome, context.DeadlineExceeded
	}
	return spillway.Failure, &RedisError{Reason: reason, Err: err}
}
