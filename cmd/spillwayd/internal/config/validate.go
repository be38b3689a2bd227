package config

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// MaxBackends is the greatest number of backends.
const MaxBackends = 256

const (
	maxRoutes = 500
	maxName   = 40 // of a route; "." and the kind of its limit follow
	maxNodes  = 1 << 16
	maxPlaces = 1 << 20 // that Redis counts
)

// validate returns an error that names the invalid field and its value.
func (c *Config) validate() error {
	for i := range c.Listen {
		if err := c.Listen[i].validate(fmt.Sprintf("listen[%d]", i)); err != nil {
			return err
		}
	}
	if err := address("admin.address", c.Admin.Address); err != nil && c.Admin.Address != "off" {
		return err
	}
	if err := c.Backend.validate(); err != nil {
		return err
	}
	if err := c.Redis.validate(); err != nil {
		return err
	}
	if err := prefixes("trusted", c.Trusted); err != nil {
		return err
	}
	s := &c.Shedder
	switch {
	case s.SLO != 0 && s.SLO < 10*time.Millisecond:
		return fmt.Errorf("shedder.slo: must be at least 10ms, or 0s for none, got %v", s.SLO)
	case s.CPUThreshold > 1:
		return fmt.Errorf("shedder.cpuThreshold: must be in (0, 1], got %v", s.CPUThreshold)
	case s.MaxLimit > 0 && s.MaxLimit < s.MinLimit:
		return fmt.Errorf("shedder.maxLimit: must be at least minLimit, which is %d, got %d", s.MinLimit, s.MaxLimit)
	case s.MaxWait < time.Millisecond || s.MaxWait > time.Hour:
		return fmt.Errorf("shedder.maxWait: must be 1ms to 1h, got %v", s.MaxWait)
	}
	if c.DryRun && s.MaxQueue > 0 {
		return fmt.Errorf("shedder.maxQueue: must be 0 in a dry run, because requests would wait in it, got %d", s.MaxQueue)
	}
	if err := oneOf("client.key", c.Client.Key, "none", "ip", "header"); err != nil {
		return err
	}
	if c.Client.Key == "header" && !isField(c.Client.Header) {
		return fmt.Errorf("client.header: must be a header field, got %q", c.Client.Header)
	}
	if !isField(c.Priority.Header) {
		return fmt.Errorf("priority.header: must be a header field, got %q", c.Priority.Header)
	}
	if err := oneOf("log.access", c.Log.Access, "off", "on"); err != nil {
		return err
	}
	return c.validateRoutes()
}

func (l *Listen) validate(path string) error {
	if err := address(path+".address", l.Address); err != nil {
		return err
	}
	if l.TLS != nil && (l.TLS.Cert == "" || l.TLS.Key == "") {
		return fmt.Errorf("%s.tls: must name the files cert and key, got %q and %q", path, l.TLS.Cert, l.TLS.Key)
	}
	if l.AcceptRate != (limiter.Rate{}) {
		if _, err := limiter.New(limiter.Bucket{Rate: l.AcceptRate}); err != nil {
			return fmt.Errorf("%s.acceptRate: %w", path, err)
		}
	}
	if l.MaxHeader < 1<<10 || l.MaxHeader > 1<<24 {
		return fmt.Errorf("%s.maxHeader: must be 1KiB to 16MiB, got %d bytes", path, l.MaxHeader)
	}
	return prefixes(path+".proxyProtocol", l.ProxyProtocol)
}

func (b *Backend) validate() error {
	if len(b.URLs) == 0 || len(b.URLs) > MaxBackends {
		return fmt.Errorf("backend.urls: must have 1 to %d entries, got %d", MaxBackends, len(b.URLs))
	}
	for i, u := range b.URLs {
		if err := backendURL(u); err != nil {
			return fmt.Errorf("backend.urls[%d]: %w, got %q", i, err, u)
		}
		if slices.Contains(b.URLs[:i], u) {
			return fmt.Errorf("backend.urls[%d]: must not stand twice, got %q", i, u)
		}
	}
	if err := oneOf("backend.host", b.Host, "preserve", "backend"); err != nil {
		return err
	}
	if err := oneOf("backend.cpu", b.CPU, "backend", "machine"); err != nil {
		return err
	}
	if b.TimeoutHeader != "" && !isField(b.TimeoutHeader) {
		return fmt.Errorf("backend.timeoutHeader: must be a header field, got %q", b.TimeoutHeader)
	}
	if b.Abandoned < time.Millisecond || b.Abandoned > time.Hour {
		return fmt.Errorf("backend.abandoned: must be 1ms to 1h, got %v", b.Abandoned)
	}
	if b.Eject.FailureRate > 1 {
		return fmt.Errorf("backend.eject.failureRate: must be in (0, 1], got %v", b.Eject.FailureRate)
	}
	if b.Eject.Share > 1 {
		return fmt.Errorf("backend.eject.share: must be in (0, 1], got %v", b.Eject.Share)
	}
	if h := b.Health; h != nil {
		switch {
		case !strings.HasPrefix(h.Path, "/"):
			return fmt.Errorf("backend.health.path: must begin with a slash, got %q", h.Path)
		case h.Every < 100*time.Millisecond:
			return fmt.Errorf("backend.health.every: must be at least 100ms, got %v", h.Every)
		}
	}
	if r := b.Retry; r != nil {
		switch {
		case r.Attempts < 2 || r.Attempts > 10:
			return fmt.Errorf("backend.retry.attempts: must be 2 to 10, got %d", r.Attempts)
		case r.Backoff < time.Millisecond || r.Backoff > 10*time.Second:
			return fmt.Errorf("backend.retry.backoff: must be 1ms to 10s, got %v", r.Backoff)
		case r.Tokens > 1000:
			return fmt.Errorf("backend.retry.tokens: must be 1 to 1000, got %d", r.Tokens)
		}
	}
	return nil
}

func (c *Config) validateRoutes() error {
	if len(c.Routes) > maxRoutes {
		return fmt.Errorf("routes: must have at most %d entries, got %d", maxRoutes, len(c.Routes))
	}
	mux := http.NewServeMux()
	names := map[string]bool{"": true, "default": true, "shedder": true, "backends": true, "rules": true}
	for i := range c.Routes {
		r, path := &c.Routes[i], fmt.Sprintf("routes[%d]", i)
		if err := register(mux, r.Match); err != nil {
			return fmt.Errorf("%s.match: %w, got %q", path, err, r.Match)
		}
		switch {
		case len(r.Name) > maxName || strings.ContainsFunc(r.Name, func(c rune) bool { return c < ' ' || c > '~' }):
			return fmt.Errorf("%s.name: must be printable ASCII of at most %d bytes, got %q", path, maxName, r.Name)
		case names[r.Name]:
			return fmt.Errorf("%s.name: must differ from other names and from default, shedder, backends and rules, got %q", path, r.Name)
		case r.Deadline != 0 && r.Deadline < time.Millisecond:
			return fmt.Errorf("%s.deadline: must be at least 1ms, or 0s for none, got %v", path, r.Deadline)
		}
		names[r.Name] = true
		if err := c.validateLimits(r, path); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) validateLimits(r *Route, path string) error {
	if r.Rate != nil {
		if err := c.validateRate(r.Rate, path+".rate"); err != nil {
			return err
		}
	}
	seen := map[string]bool{}
	for i := range r.Quotas {
		q, at := &r.Quotas[i], fmt.Sprintf("%s.quotas[%d]", path, i)
		if err := c.validateQuota(q, at); err != nil {
			return err
		}
		name := QuotaTarget("", q)
		if seen[name] {
			return fmt.Errorf("%s: there must be one quota for each every and per, got a second for %q and %q", at, q.Every, q.Per)
		}
		seen[name] = true
	}
	if l := r.Concurrency; l != nil {
		if l.Limit < 1 {
			return fmt.Errorf("%s.concurrency.limit: must be at least 1, got %d", path, l.Limit)
		}
		if err := c.shared(path+".concurrency", l.Shared); err != nil {
			return err
		}
		if l.Shared && l.Limit > maxPlaces {
			return fmt.Errorf("%s.concurrency.limit: must be at most %d if it is shared, got %d", path, maxPlaces, l.Limit)
		}
		return c.per(path+".concurrency.per", l.Per)
	}
	return nil
}

func (c *Config) validateRate(l *Rate, path string) error {
	if _, err := limiter.New(l.Rule("")); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if c.DryRun && l.MaxWait > 0 {
		return fmt.Errorf("%s.maxWait: must be 0s in a dry run, because requests would wait, got %v", path, l.MaxWait)
	}
	if l.MaxQueue > 0 && l.MaxWait == 0 {
		return fmt.Errorf("%s.maxQueue: needs maxWait, which is 0s, got %d", path, l.MaxQueue)
	}
	if err := c.shared(path, l.Shared); err != nil {
		return err
	}
	if l.Shared && (l.MaxWait > 0 || l.Per == PerBackend) {
		return fmt.Errorf("%s.shared: must be false with maxWait or per: backend, got true", path)
	}
	if l.Per != PerBackend {
		return c.per(path+".per", l.Per, PerBackend)
	}
	if _, err := limiter.New(Scale(l.Rule(""), len(c.Backend.URLs))); err != nil {
		return fmt.Errorf("%s, for all %d backends: %w", path, len(c.Backend.URLs), err)
	}
	return nil
}

func (c *Config) validateQuota(q *Quota, path string) error {
	if err := oneOf(path+".every", q.Every, "minute", "hour", "day", "month"); err != nil {
		return err
	}
	if _, err := time.LoadLocation(q.Zone); err != nil || q.Zone == "Local" {
		return fmt.Errorf("%s.zone: must be a time zone such as Europe/Berlin, got %q", path, q.Zone)
	}
	if _, err := limiter.New(q.Rule("")); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := c.shared(path, q.Shared); err != nil {
		return err
	}
	return c.per(path+".per", q.Per)
}

// shared checks a field shared.
func (c *Config) shared(path string, shared bool) error {
	if shared && c.Redis == nil {
		return fmt.Errorf("%s.shared: needs redis.url, which is not set", path)
	}
	return nil
}

// validate checks what does not need a connection. The error does not hold the URL, which may have a password.
func (r *Redis) validate() error {
	if r == nil {
		return nil
	}
	u, err := url.Parse(r.URL)
	switch {
	case err != nil || !slices.Contains([]string{"redis", "rediss", "unix"}, u.Scheme) || r.Cluster && u.Scheme == "unix":
		return errors.New("redis.url: must be an URL such as redis://user@host:6379/0, with rediss for TLS, or unix:///path of one server")
	case r.CA != "" && u.Scheme != "rediss":
		return fmt.Errorf("redis.ca: needs an URL with rediss, got %q", u.Scheme)
	case r.Prefix == "" || strings.ContainsAny(r.Prefix, "{}"):
		return fmt.Errorf("redis.prefix: must have no braces, got %q", r.Prefix)
	case r.Nodes < 1 || r.Nodes > maxNodes:
		return fmt.Errorf("redis.nodes: must be the number of processes that share the limits, 1 to %d, got %d", maxNodes, r.Nodes)
	case r.Timeout < time.Millisecond || r.Timeout > time.Minute:
		return fmt.Errorf("redis.timeout: must be 1ms to 1m, got %v", r.Timeout)
	case r.Term < time.Second || r.Term > time.Hour:
		return fmt.Errorf("redis.term: must be 1s to 1h, got %v", r.Term)
	}
	return oneOf("redis.fallback", r.Fallback, FallbackDivide, FallbackAllow, FallbackRefuse)
}

// per checks a field per.
func (c *Config) per(path, value string, more ...string) error {
	if value == PerClient && c.Client.Key == "none" {
		return fmt.Errorf("%s: client needs client.key to be ip or header, which is none", path)
	}
	return oneOf(path, value, append([]string{PerClient, PerAll}, more...)...)
}

// register enters a pattern, and returns the panic of the mux as an error.
func register(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			text, _, _ := strings.Cut(fmt.Sprint(p), "\n")
			err = fmt.Errorf("must be a pattern of http.ServeMux that no other route has (%s)", text)
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

func oneOf(path, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s: must be one of %s, got %q", path, strings.Join(allowed, ", "), value)
}

func address(path, value string) error {
	if _, _, err := net.SplitHostPort(value); err != nil {
		return fmt.Errorf("%s: must be a host and a port, such as :8080, got %q", path, value)
	}
	return nil
}

// prefixes refuses networks that hold all addresses.
func prefixes(path string, list []netip.Prefix) error {
	for i, p := range list {
		if p.Bits() < 1 {
			return fmt.Errorf("%s[%d]: must be a network of at least 1 bit, got %q", path, i, p)
		}
	}
	return nil
}

func backendURL(text string) error {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if !strings.HasPrefix(path, "/") {
			return errors.New("must be unix: and an absolute path")
		}
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return err
	case !slices.Contains([]string{"http", "https", "h2c"}, u.Scheme) || u.Hostname() == "":
		return errors.New("must be an URL with http, https or h2c and a host, or unix: and a path")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return errors.New("must have no path, query or user")
	}
	return nil
}

// isField reports whether name is the name of a header field.
func isField(name string) bool {
	const lower, upper, others = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "!#$%&'*+-.^_`|~0123456789"
	return name != "" && strings.TrimLeft(name, lower+upper+others) == ""
}
