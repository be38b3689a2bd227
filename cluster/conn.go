package cluster

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
)

// DefaultTimeout is the longest time of a call of Redis: hundreds of round trips within a data centre, and still less
// than a request should spend on a decision.
const DefaultTimeout = 100 * time.Millisecond

// maxTimeout bounds the time of a call.
const maxTimeout = time.Minute

// connOptions are the options that all types of this package share.
type connOptions struct {
	kind    string // of what is made, for errors: "Limit"
	client  redis.UniversalClient
	timeout time.Duration    // if 0, DefaultTimeout
	breaker *breaker.Options // if nil, defaultBreaker
	flights int              // calls in flight at the same time; if 0, maxFlights
}

// A conn calls Redis within a bounded time. No call takes longer than the timeout, and a breaker blocks calls to a
// Redis that does not answer. No command is sent a second time unless Redis said that it did not run it. All methods
// may be called concurrently; none takes a lock during a call. Its goroutines are those of calls: see [flight].
type conn struct {
	client   redis.UniversalClient
	timeout  time.Duration
	brk      *breaker.Breaker
	flights  chan struct{} // one element for each call of the client
	base     time.Time
	heard    atomic.Int64 // when Redis last answered in time, in ns since base
	underway atomic.Int64 // calls that were sent and not answered
}

// defaultBreaker opens for short times, since finding out whether Redis is back costs one call.
func defaultBreaker() *breaker.Options {
	return &breaker.Options{Consecutive: 5, OpenFor: 250 * time.Millisecond, MaxOpen: 4 * time.Second, Probes: 1}
}

// newConn returns a conn without touching the network. The error names the invalid option.
func newConn(o connOptions) (*conn, error) {
	c := &conn{
		client: o.client, timeout: cmp.Or(o.timeout, DefaultTimeout), base: time.Now(),
		flights: make(chan struct{}, cmp.Or(o.flights, maxFlights)),
	}
	if c.timeout < time.Millisecond || c.timeout > maxTimeout {
		return nil, fmt.Errorf("cluster: %s: Timeout must be in 1ms..%v, got %v", o.kind, maxTimeout, o.timeout)
	}
	if err := checkClient(o.kind, o.client); err != nil {
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

// checkClient checks that there is a client, and that its calls end.
func checkClient(kind string, client redis.UniversalClient) error {
	ends := true
	bounded := func(deadlines bool, read time.Duration) bool { return deadlines || read > 0 }
	set := client != nil
	switch cl := client.(type) {
	case *redis.Client:
		if set = cl != nil; set {
			ends = bounded(cl.Options().ContextTimeoutEnabled, cl.Options().ReadTimeout)
		}
	case *redis.ClusterClient:
		if set = cl != nil; set {
			ends = bounded(cl.Options().ContextTimeoutEnabled, cl.Options().ReadTimeout)
		}
	case *redis.Ring:
		if set = cl != nil; set {
			ends = bounded(cl.Options().ContextTimeoutEnabled, cl.Options().ReadTimeout)
		}
	}
	switch {
	case !set:
		return fmt.Errorf("cluster: %s: Client must be set, got nil", kind)
	case !ends:
		return fmt.Errorf("cluster: %s: Client must have a ReadTimeout or ContextTimeoutEnabled, got a %T that waits forever", kind, client)
	}
	return nil
}

// run runs a script and returns the integers that it returns. An error is a *[RedisError], or ctx.Err() if ctx ended first.
func (c *conn) run(ctx context.Context, s *script, keys []string, args ...any) ([]int64, error) {
	reply, err := c.call(ctx, s, keys, args...)
	if err != nil {
		return nil, err
	}
	return integers(reply)
}

// integers reads an array of them.
func integers(reply any) ([]int64, error) {
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
	var reply any
	err := c.admitted(ctx, func(began time.Time) (spillway.Outcome, error) {
		f, command := newFlight(ctx, c, began), s.command(keys, args)
		if !f.run(ctx, func(ctx context.Context) { f.reply, f.err = f.send(ctx, s, command) }) || f.err != nil {
			return f.judge(ctx)
		}
		reply = f.reply
		return spillway.Success, nil
	})
	return reply, err
}

// admitted runs fn, unless the breaker is open, and reports the outcome to the breaker.
func (c *conn) admitted(ctx context.Context, fn func(began time.Time) (spillway.Outcome, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := spillway.Request{Arrived: time.Now()}
	ticket, err := c.brk.Admit(ctx, r)
	if err != nil {
		return &RedisError{Reason: ReasonBreaker, Err: err}
	}
	// A panic in a hook of the client must not leave a probe of the breaker in flight.
	outcome := spillway.Failure
	defer func() { c.brk.Done(r, ticket, spillway.Result{Outcome: outcome, Latency: time.Since(r.Arrived)}) }()
	outcome, err = fn(r.Arrived)
	return err
}
