package proxy

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
	"github.com/spillway-go/spillway/cmd/spillwayd/internal/shared"
	"github.com/spillway-go/spillway/deadline"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/rules"
	"github.com/spillway-go/spillway/shadow"
)

// clientPolicy is the name of the limit on the requests of a client that run at once.
const clientPolicy = "client"

// A builder makes routes from one Config.
type builder struct {
	p       *Proxy
	key     func(*http.Request) string            // nil if requests belong to no client
	asked   func(*http.Request) spillway.Priority // nil if all requests are alike
	shared  []spillway.Policy                     // of all routes, in front
	late    *deadline.Policy
	reverse http.Handler
	targets map[string]rules.Target

	promised []httpgate.QuotaFunc // limits of each client on the route that is being built
}

func newBuilder(p *Proxy) (*builder, error) {
	c := p.conf
	b := &builder{p: p, reverse: p.reverse(), targets: map[string]rules.Target{config.ShedderTarget: rules.Of(p.shed)}}
	var err error
	if b.asked, err = httpgate.NewPriority(&httpgate.PriorityOptions{
		Trusted: c.Trusted, Header: c.Priority.Header, LowerFirst: c.Priority.LowerFirst, Browser: c.Priority.Browser,
	}); err != nil {
		return nil, err
	}
	if len(c.Trusted) == 0 && !c.Priority.Browser {
		b.asked = nil
	}
	if b.late, err = deadline.New(nil); err != nil {
		return nil, err
	}
	if b.key, err = clientKey(c); err != nil {
		return nil, err
	}
	if c.Client.MaxConcurrent > 0 && b.key != nil {
		limit, err := limiter.NewKeyed(limiter.Concurrency{Name: clientPolicy, Limit: c.Client.MaxConcurrent}, nil)
		if err != nil {
			return nil, err
		}
		b.shared = append(b.shared, b.trial(limit))
	}
	return b, nil
}

// clientKey returns who a request belongs to, or nil if that does not matter.
func clientKey(c *config.Config) (func(*http.Request) string, error) {
	if c.Client.Key == "none" {
		return nil, nil //nolint:nilnil // nil asks for no key
	}
	o := &httpgate.ClientIPOptions{Trusted: c.Trusted}
	if len(c.Trusted) > 0 {
		o.Header = "X-Forwarded-For"
	}
	ip, err := httpgate.NewClientIP(o)
	if err != nil {
		return nil, err
	}
	if c.Client.Key == "ip" {
		return ip.Key, nil
	}
	return httpgate.FirstKey(httpgate.HeaderKey(c.Client.Header), ip.Key), nil
}

// trial returns p, or a shadow of it in a dry run.
func (b *builder) trial(p spillway.Policy) spillway.Policy {
	if b.p.conf.DryRun {
		return shadow.New(p)
	}
	return p
}

// route makes a route: rates and quotas first, then places, the deadline, and the shedder.
func (b *builder) route(r *config.Route) (*route, error) {
	policies := append([]spillway.Policy(nil), b.shared...)
	b.promised = nil
	if l := r.Rate; l != nil {
		p, err := b.rate(l, config.RateTarget(r.Name))
		if err != nil {
			return nil, err
		}
		policies = append(policies, p)
	}
	for i := range r.Quotas {
		q := &r.Quotas[i]
		p, err := b.quota(q, config.QuotaTarget(r.Name, q))
		if err != nil {
			return nil, err
		}
		policies = append(policies, p)
	}
	if l := r.Concurrency; l != nil {
		p, err := b.concurrency(l, config.ConcurrencyTarget(r.Name))
		if err != nil {
			return nil, err
		}
		policies = append(policies, p)
	}
	if r.Deadline > 0 {
		policies = append(policies, b.trial(b.late))
	}
	policies = append(policies, b.trial(b.p.shed))
	exempt, own := r.Exempt, ownLimits(r)
	o := &httpgate.Options{
		Request: b.request(r),
		Exempt:  func(*http.Request) bool { return exempt },
		Outcome: outcome,
		Refuse: func(w http.ResponseWriter, r *http.Request, rej *spillway.Rejection) {
			b.p.log.refuse(w, r, rej)
			if rej.OverQuota && own[rej.Policy] || rej.Policy == clientPolicy {
				b.p.noteRefusal(r)
			}
		},
	}
	if b.p.conf.Client.RateLimitHeaders && len(b.promised) > 0 {
		o.RateLimit = &httpgate.RateLimit{Limits: b.promised}
	}
	gate, err := httpgate.New(spillway.New(policies...), o)
	if err != nil {
		return nil, err
	}
	most := r.MaxBody
	if most == 0 {
		most = b.p.conf.MaxBody
	}
	return &route{name: r.Name, maxBody: int64(most), gate: gate, handler: gate.Handler(b.reverse)}, nil
}

// ownLimits returns the names of the policies of a route that limit each client by itself. What the others refuse may be the fault of
// another client.
func ownLimits(r *config.Route) map[string]bool {
	own := map[string]bool{}
	add := func(per, name string) {
		if per == config.PerClient {
			own[name], own[shared.Name(name)] = true, true
		}
	}
	if r.Rate != nil {
		add(r.Rate.Per, config.RateTarget(r.Name))
	}
	for i := range r.Quotas {
		add(r.Quotas[i].Per, config.QuotaTarget(r.Name, &r.Quotas[i]))
	}
	return own
}

// rate makes the limit for the rate of a route.
func (b *builder) rate(l *config.Rate, name string) (spillway.Policy, error) {
	rule := l.Rule(name)
	switch {
	case !l.Tunable():
		return b.shaper(rule, name)
	case !l.Shared:
		return b.limit(rule, name, l.Per)
	}
	limit, err := b.p.limits.Rate(limiter.Bucket{Name: name, Rate: l.Rate, Burst: l.Burst}, l.Per == config.PerClient)
	if err != nil {
		return nil, err
	}
	b.targets[name] = rules.Of(limit)
	b.promise(l.Per, limit.Quota)
	return b.trial(limit), nil
}

// quota makes a limit for a period of the calendar.
func (b *builder) quota(q *config.Quota, name string) (spillway.Policy, error) {
	rule := q.Rule(name)
	if !q.Shared {
		return b.limit(rule, name, q.Per)
	}
	limit, err := b.p.limits.Quota(rule, q.Per == config.PerClient)
	if err != nil {
		return nil, err
	}
	b.targets[name] = rules.Of(limit)
	b.promise(q.Per, limit.Quota)
	return b.trial(limit), nil
}

// concurrency makes a limit on the requests that run at once.
func (b *builder) concurrency(l *config.Concurrency, name string) (spillway.Policy, error) {
	if !l.Shared {
		return b.limit(limiter.Concurrency{Name: name, Limit: l.Limit}, name, l.Per)
	}
	limit, err := b.p.limits.Concurrency(name, l.Limit, l.Per == config.PerClient)
	if err != nil {
		return nil, err
	}
	b.targets[name] = rules.Of(limit)
	return b.trial(limit), nil
}

// promise notes a limit of each client, to tell it what is left. What all clients together have left is no promise to one.
func (b *builder) promise(per string, quota httpgate.QuotaFunc) {
	if per == config.PerClient {
		b.promised = append(b.promised, quota)
	}
}

// limit makes a limit of a route for each client, for each backend or for all, and a target of the rules.
func (b *builder) limit(rule limiter.Rule, name, per string) (spillway.Policy, error) {
	if per == config.PerClient {
		keyed, err := limiter.NewKeyed(rule, nil)
		if err != nil {
			return nil, err
		}
		b.targets[name] = rules.Of(keyed)
		if _, places := rule.(limiter.Concurrency); !places {
			b.promise(per, keyed.Quota)
		}
		return b.trial(keyed), nil
	}
	if per == config.PerBackend {
		limit, err := newPerBackend(rule, b.p.pool.Up)
		if err != nil {
			return nil, err
		}
		b.targets[name] = rules.Of(limit)
		return b.trial(limit), nil
	}
	limit, err := limiter.New(rule)
	if err != nil {
		return nil, err
	}
	b.targets[name] = rules.Of(limit)
	return b.trial(limit), nil
}

// shaper makes a limit for each client in which its requests wait.
func (b *builder) shaper(rule limiter.Rule, name string) (*crowd, error) {
	each, err := limiter.NewRegistry(&limiter.RegistryOptions{
		Name: name, New: func(string) (limiter.Member, error) { return limiter.New(rule) },
	})
	return &crowd{Registry: each, most: mostWaiting, full: &spillway.Rejection{Policy: name, Reason: "queue full", RetryAfter: time.Second}}, err
}

// mostWaiting is how many requests of all clients together may wait for the rate of a route. Each takes some 10 KiB.
const mostWaiting = 4096

// A crowd bounds the requests that wait for their turn among those of the same client.
type crowd struct {
	*limiter.Registry
	most    int64
	waiting atomic.Int64
	full    *spillway.Rejection
}

// Admit waits for the turn of r, unless too many requests wait.
func (c *crowd) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	defer c.waiting.Add(-1)
	if c.waiting.Add(1) > c.most {
		return 0, c.full
	}
	return c.Registry.Admit(ctx, r)
}
