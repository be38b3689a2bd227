// Package shared makes limits that several processes share through Redis.
package shared

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/exact"
	"github.com/spillway-go/spillway/cluster/lease"
	"github.com/spillway-go/spillway/cluster/lock"
	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
	"github.com/spillway-go/spillway/limiter"
)

// Limits makes limits in one Redis. It is made by [New], and owns a goroutine and its limits until Close. It asks Redis for nothing
// before the first request.
type Limits struct {
	o       config.Redis
	client  redis.UniversalClient
	logger  *slog.Logger
	away    atomic.Bool // Redis did not answer some limit; the log says so
	leases  []*lease.Limit
	mu      sync.Mutex
	places  []*lock.Semaphore
	quotas  []*exact.Allowance // guarded by mu
	stop    context.CancelFunc
	running sync.WaitGroup
}

// sweepEvery is how often tokens that were fetched and not spent are given back.
const sweepEvery = 5 * time.Second

// New returns Limits with the options o, which are valid.
func New(o *config.Redis, logger *slog.Logger) (*Limits, error) {
	client, err := connect(o)
	if err != nil {
		return nil, err
	}
	l := &Limits{o: *o, client: client, logger: logger}
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	l.running.Go(func() { l.sweep(ctx) })
	return l, nil
}

// sweep connects, so that the first request need not wait for that, and gives tokens back that were not spent.
func (l *Limits) sweep(ctx context.Context) {
	if err := l.client.Ping(ctx).Err(); err != nil && ctx.Err() == nil {
		l.lost(err.Error())
	}
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, q := range l.all() {
			_ = q.Sweep(ctx) // tokens that are not given back return with the next period
		}
	}
}

func (l *Limits) all() []*exact.Allowance {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.quotas
}

// lost notes that Redis does not answer, in one line for each outage.
func (l *Limits) lost(reason string) {
	if l.away.CompareAndSwap(false, true) {
		l.logger.Warn("spillwayd: Redis does not answer", slog.String("reason", reason), slog.String("fallback", l.o.Fallback))
	}
}

// breaker returns the options for the breaker of a limit: those of package cluster, with lines in the log.
func (l *Limits) breaker() *breaker.Options {
	return &breaker.Options{
		Consecutive: 5, OpenFor: 250 * time.Millisecond, MaxOpen: 4 * time.Second, Probes: 1,
		OnEvent: func(e breaker.Event) {
			switch e.To {
			case breaker.Open:
				l.lost(e.Reason)
			case breaker.Closed:
				if l.away.CompareAndSwap(true, false) {
					l.logger.Info("spillwayd: Redis answers again")
				}
			}
		},
	}
}

// fallback returns what decides without Redis.
func (l *Limits) fallback(divide cluster.Fallback) cluster.Fallback {
	switch l.o.Fallback {
	case config.FallbackAllow:
		return cluster.AllowAll
	case config.FallbackRefuse:
		return cluster.RefuseAll
	}
	return divide
}

// Name returns the name of the policy for a limit. It is part of a key of Redis, so it has no braces and colons, which have a
// meaning there.
func Name(name string) string {
	return strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D", ":", "%3A").Replace(name)
}

// Rate returns a limit on a rate for each client or for all requests.
func (l *Limits) Rate(rule limiter.Bucket, perClient bool) (*lease.Limit, error) {
	limit, err := lease.New(&lease.Options{
		Client: l.client, Rule: rule, Name: Name(rule.Name), Prefix: l.o.Prefix, IgnoreKey: !perClient, Nodes: l.o.Nodes, Timeout: l.o.Timeout,
		Fallback: l.fallback(cluster.HoldLease), Breaker: l.breaker(),
	})
	if err != nil {
		return nil, err
	}
	l.leases = append(l.leases, limit)
	return limit, nil
}

// Quota returns a limit for each period of a calendar, for each client or for all requests.
func (l *Limits) Quota(rule limiter.FixedWindow, perClient bool) (*Quota, error) {
	limit, err := exact.New(&exact.Options{
		Client: l.client, Rules: []limiter.Rule{rule}, Name: Name(rule.Name), Prefix: l.o.Prefix, Nodes: l.o.Nodes, Timeout: l.o.Timeout,
		Fallback: l.fallback(cluster.Divide), Breaker: l.breaker(),
	})
	if err != nil {
		return nil, err
	}
	allowance, err := exact.NewAllowance(&exact.AllowanceOptions{Limit: limit, Nodes: l.o.Nodes})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quotas = append(l.quotas, allowance)
	return &Quota{Allowance: allowance, limit: limit, whole: !perClient}, nil
}

// Concurrency returns a limit on the requests that run at once, of each client or of all.
func (l *Limits) Concurrency(name string, limit int, perClient bool) (*Places, error) {
	s, err := lock.New(&lock.Options{
		Client: l.client, Limit: limit, Name: Name(name), Prefix: l.o.Prefix, TTL: l.o.Term, Nodes: l.o.Nodes, Timeout: l.o.Timeout,
		Fallback: l.fallback(cluster.Divide), Breaker: l.breaker(),
	})
	if err != nil {
		return nil, err
	}
	l.places = append(l.places, s)
	return &Places{Semaphore: s, whole: !perClient}, nil
}

// Places bound the requests that run at once.
type Places struct {
	*lock.Semaphore
	whole bool // the same places for all requests
}

// Admit takes a place for r.
func (p *Places) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	if p.whole {
		r.Key = ""
	}
	return p.Semaphore.Admit(ctx, r)
}

// Close gives leases and tokens back, and ends the connections.
func (l *Limits) Close() {
	l.stop()
	l.running.Wait()
	var ends sync.WaitGroup
	for _, limit := range l.leases {
		ends.Go(limit.Close)
	}
	for _, s := range l.places {
		ends.Go(func() { _ = s.Close() }) // places that are not given back are free after the term
	}
	for _, q := range l.all() {
		ends.Go(func() { _ = q.Close() }) // tokens that are not given back return with the next period
	}
	ends.Wait()
	_ = l.client.Close()
}

// A Quota is a count for each period of a calendar. It takes several tokens of Redis at once and spends them here.
type Quota struct {
	*exact.Allowance
	limit *exact.Limit
	whole bool // one count for all requests
}

func (q *Quota) of(r spillway.Request) spillway.Request {
	if q.whole {
		r.Key = ""
	}
	return r
}

// Admit takes the cost of r.
func (q *Quota) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	return q.Allowance.Admit(ctx, q.of(r))
}

// Done gives the tokens of a refused request back.
func (q *Quota) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	q.Allowance.Done(q.of(r), t, res)
}

// Quota returns what is left.
func (q *Quota) Quota(now time.Time, r spillway.Request) spillway.Quota {
	return q.Allowance.Quota(now, q.of(r))
}

// Rule returns the rule in force.
func (q *Quota) Rule() limiter.Rule { return q.limit.Rules()[0] }

// Tune replaces the rule.
func (q *Quota) Tune(rule limiter.Rule) error { return q.limit.Tune(rule) }

// Check returns the rule that Tune would put in force, or its error.
func (q *Quota) Check(rule limiter.Rule) (limiter.Rule, error) {
	rules, err := q.limit.Check(rule)
	if err != nil {
		return nil, err
	}
	return rules[0], nil
}
