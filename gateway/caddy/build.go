package caddy

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shadow"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
)

// maxPolicies is the greatest number of policies of a gate.
const maxPolicies = 8

// A state is what the requests of a handler share. It is safe for concurrent use.
type state struct {
	gate *httpgate.Middleware
	keys []string // placeholders, each once

	priority string // placeholder of the priority; or ""
}

// build makes the state of h. The error names the invalid field.
func (h *Handler) build() (*state, error) {
	s := &state{priority: h.Priority}
	policies, quotas, err := h.limits(s)
	if err != nil {
		return nil, err
	}
	if h.Shedder == nil || !h.Shedder.Off {
		p, err := h.shedder(s)
		if err != nil {
			return nil, fmt.Errorf("spillway: %w", err)
		}
		policies = append(policies, p)
	}
	if h.Breaker != nil {
		b := h.Breaker
		p, err := breaker.New(&breaker.Options{
			FailureRate: b.FailureRate, Consecutive: b.Consecutive, MinCalls: b.MinCalls, Window: time.Duration(b.Window),
			OpenFor: time.Duration(b.OpenFor), SlowCall: time.Duration(b.SlowCall),
		})
		if err != nil {
			return nil, fmt.Errorf("spillway: %w", err)
		}
		policies = append(policies, p)
	}
	if len(policies) > maxPolicies {
		return nil, fmt.Errorf("spillway: at most %d policies are possible, got %d", maxPolicies, len(policies))
	}
	if h.DryRun {
		for i, p := range policies {
			policies[i] = shadow.New(p)
		}
	}
	o := &httpgate.Options{Request: s.request, Exempt: func(*http.Request) bool { return false }, Outcome: outcome, Refuse: refuse}
	if h.RateLimitHeaders {
		o.RateLimit = &httpgate.RateLimit{Limits: quotas}
	}
	s.gate, err = httpgate.New(spillway.New(policies...), o)
	return s, err
}

// limits makes the policies of h.Rates and h.Concurrency, and the quotas of the former.
func (h *Handler) limits(s *state) (policies []spillway.Policy, quotas []httpgate.QuotaFunc, err error) {
	for _, r := range h.Rates {
		p, quota, err := s.limit(limiter.Bucket{Name: r.Name, Rate: r.Rate, Burst: r.Burst}, r.Key, r.MaxKeys)
		if err != nil {
			return nil, nil, fmt.Errorf("spillway: rate %q: %w", r.Name, err)
		}
		policies, quotas = append(policies, p), append(quotas, quota)
	}
	for _, c := range h.Concurrency {
		p, _, err := s.limit(limiter.Concurrency{Name: c.Name, Limit: c.Limit}, c.Key, c.MaxKeys)
		if err != nil {
			return nil, nil, fmt.Errorf("spillway: concurrency %q: %w", c.Name, err)
		}
		policies = append(policies, p)
	}
	return policies, quotas, nil
}

// limit makes a limit for each value of a placeholder, or one for all if it is "".
func (s *state) limit(rule limiter.Rule, key string, maxKeys int) (spillway.Policy, httpgate.QuotaFunc, error) {
	if key == "" {
		if maxKeys != 0 {
			return nil, nil, fmt.Errorf("max_keys: needs a key, got %d", maxKeys)
		}
		l, err := limiter.New(rule)
		if err != nil {
			return nil, nil, err
		}
		return l, l.Quota, nil
	}
	l, err := limiter.NewKeyed(rule, &limiter.KeyedOptions{MaxKeys: maxKeys})
	if err != nil {
		return nil, nil, err
	}
	p := part{Policy: l, n: s.index(key)}
	return p, func(now time.Time, r spillway.Request) spillway.Quota { return l.Quota(now, p.of(r)) }, nil
}

func (h *Handler) shedder(s *state) (spillway.Policy, error) {
	c := Shedder{}
	if h.Shedder != nil {
		c = *h.Shedder
	}
	o := &shedder.Options{
		CPUThreshold: c.CPUThreshold, SLO: time.Duration(c.SLO), MinLimit: c.MinLimit, MaxLimit: c.MaxLimit, MaxShed: c.MaxShed,
	}
	switch c.CPU {
	case "", "process":
	case "off":
		o.CPUThreshold = shedder.Off
	case "machine":
		cpu, err := stats.NewCPU(&stats.CPUOptions{Source: stats.HostCPU()})
		if err != nil {
			return nil, err
		}
		o.CPU = cpu
	default:
		return nil, fmt.Errorf("shedder: cpu: must be process, machine or off, got %q", c.CPU)
	}
	p, err := shedder.New(o)
	if err != nil {
		return nil, err
	}
	n := -1
	if c.Key != "" {
		n = s.index(c.Key)
	}
	return part{Policy: p, n: n}, nil
}

// index returns the place of a placeholder in the keys.
func (s *state) index(placeholder string) int {
	if i := slices.Index(s.keys, placeholder); i >= 0 {
		return i
	}
	s.keys = append(s.keys, placeholder)
	return len(s.keys) - 1
}

// separator stands between the values of the placeholders in the key of a request. escape hides it in a value.
const separator, escape = "\x1f", "\x1e"

// request describes a request by the values of all placeholders.
func (s *state) request(r *http.Request) (q spillway.Request) {
	if len(s.keys) == 0 && s.priority == "" {
		return q
	}
	replacer, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return q
	}
	if s.priority != "" && q.Priority.UnmarshalText([]byte(replacer.ReplaceAll(s.priority, ""))) != nil {
		q.Priority = spillway.Normal
	}
	if len(s.keys) == 1 {
		q.Key = hide(replacer.ReplaceAll(s.keys[0], ""))
		return q
	}
	values := make([]string, len(s.keys))
	for i, k := range s.keys {
		values[i] = hide(replacer.ReplaceAll(k, ""))
	}
	q.Key = strings.Join(values, separator)
	return q
}

// hide returns a value without separators; different values stay different.
func hide(value string) string {
	if !strings.ContainsAny(value, separator+escape) {
		return value
	}
	value = strings.ReplaceAll(value, escape, escape+"0")
	return strings.ReplaceAll(value, separator, escape+"1")
}

// A part is a policy that sees one value of the key, or none if n is -1.
type part struct {
	spillway.Policy

	n int
}

func (p part) of(r spillway.Request) spillway.Request {
	if p.n < 0 {
		r.Key = ""
		return r
	}
	rest := r.Key
	for range p.n {
		_, rest, _ = strings.Cut(rest, separator)
	}
	r.Key, _, _ = strings.Cut(rest, separator)
	return r
}

// Admit asks the policy.
func (p part) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	return p.Policy.Admit(ctx, p.of(r))
}

// Done reports to the policy.
func (p part) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	p.Policy.Done(p.of(r), t, res)
}

// Metrics yields the figures of the policy.
func (p part) Metrics() iter.Seq[stats.Metric] {
	if s, ok := p.Policy.(stats.Source); ok {
		return s.Metrics()
	}
	return func(func(stats.Metric) bool) {}
}
