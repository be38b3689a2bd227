// Package call runs scripts on Redis within a bounded time. No call takes longer than its Timeout, none is repeated,
// and a breaker blocks calls to a Redis that does not answer.
package call

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/reason"
)

// DefaultTimeout is the longest time of a call of Redis: hundreds of round trips within a data centre, and still less
// than a request should spend on a decision.
const DefaultTimeout = 100 * time.Millisecond

// MaxTimeout bounds the time of a call.
const MaxTimeout = time.Minute

// Options are the options that all types of this package share.
type Options struct {
	Kind    string // the kind of limit or lock, for errors: "exact"
	Client  redis.UniversalClient
	Timeout time.Duration    // if 0, DefaultTimeout
	Breaker *breaker.Options // if nil, DefaultBreaker; if its Name is empty, "redis"
	Flights int              // calls in flight at the same time; if 0, MaxFlights
}

// A Conn calls Redis within a bounded time. No call takes longer than the timeout, and a breaker blocks calls to a
// Redis that does not answer. No command is sent a second time unless Redis said that it did not run it. All methods
// may be called concurrently; none takes a lock during a call. Its only goroutines run calls: see [flight].
type Conn struct {
	// Set by New, and read only from then on.
	Client  redis.UniversalClient
	Timeout time.Duration
	Breaker *breaker.Breaker
	Flights chan struct{} // one element for each call of the client
	Base    time.Time

	heard    atomic.Int64 // when Redis last answered in time, in ns since Base
	underway atomic.Int64 // calls that were sent and not answered
}

// DefaultBreaker opens for short times, since finding out whether Redis is back costs one call.
func DefaultBreaker() *breaker.Options {
	return &breaker.Options{Consecutive: 5, OpenFor: 250 * time.Millisecond, MaxOpen: 4 * time.Second, Probes: 1}
}

// New returns a conn without touching the network. The error names the invalid option.
func New(o Options) (*Conn, error) {
	c := &Conn{
		Client: o.Client, Timeout: cmp.Or(o.Timeout, DefaultTimeout), Base: time.Now(),
		Flights: make(chan struct{}, cmp.Or(o.Flights, MaxFlights)),
	}
	if c.Timeout < time.Millisecond || c.Timeout > MaxTimeout {
		return nil, fmt.Errorf("%s: Timeout must be in 1ms..%v, got %v", o.Kind, MaxTimeout, o.Timeout)
	}
	if err := checkClient(o.Kind, o.Client); err != nil {
		return nil, err
	}
	opts := *cmp.Or(o.Breaker, DefaultBreaker())
	opts.Name = cmp.Or(opts.Name, "redis")
	brk, err := breaker.New(&opts)
	if err != nil {
		return nil, fmt.Errorf("%s: Breaker: %w", o.Kind, err)
	}
	c.Breaker = brk
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
		return fmt.Errorf("%s: Client must be set, got nil", kind)
	case !ends:
		return fmt.Errorf("%s: Client must have a ReadTimeout or ContextTimeoutEnabled, got a %T that waits forever", kind, client)
	}
	return nil
}

// Run runs a script and returns the integers in its reply. An error is a *[cluster.RedisError], or ctx.Err() if ctx ended
// first.
func (c *Conn) Run(ctx context.Context, s *Script, keys []string, args ...any) ([]int64, error) {
	reply, err := c.Call(ctx, s, keys, args...)
	if err != nil {
		return nil, err
	}
	return Integers(reply)
}

// Integers reads an array of them.
func Integers(reply any) ([]int64, error) {
	items, ok := reply.([]any)
	if !ok {
		return nil, &cluster.RedisError{Reason: reason.Script, Err: fmt.Errorf("want an array, got %T", reply)}
	}
	ints := make([]int64, len(items))
	for i, item := range items {
		if ints[i], ok = item.(int64); !ok {
			return nil, &cluster.RedisError{Reason: reason.Script, Err: fmt.Errorf("want integers, got %T", item)}
		}
	}
	return ints, nil
}

// Call runs a script and returns its reply as the client decodes it: int64, string, nil, or []any of these.
func (c *Conn) Call(ctx context.Context, s *Script, keys []string, args ...any) (any, error) {
	var reply any
	err := c.admitted(ctx, func(began time.Time) (spillway.Outcome, error) {
		f, command := newFlight(ctx, c, began), s.Command(keys, args)
		if !f.run(ctx, func(ctx context.Context) { f.reply, f.err = f.send(ctx, s, command) }) || f.err != nil {
			return f.judge(ctx)
		}
		reply = f.reply
		return spillway.Success, nil
	})
	return reply, err
}

// admitted runs fn, unless the breaker is open, and reports the outcome to the breaker.
func (c *Conn) admitted(ctx context.Context, fn func(began time.Time) (spillway.Outcome, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := spillway.Request{Arrived: time.Now()}
	ticket, err := c.Breaker.Admit(ctx, r)
	if err != nil {
		return &cluster.RedisError{Reason: reason.Breaker, Err: err}
	}
	// A panic in a hook of the client must not leave a probe of the breaker in flight.
	outcome := spillway.Failure
	defer func() { c.Breaker.Done(r, ticket, spillway.Result{Outcome: outcome, Latency: time.Since(r.Arrived)}) }()
	outcome, err = fn(r.Arrived)
	return err
}
