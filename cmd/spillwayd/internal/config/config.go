// Package config reads the file of spillwayd.
package config

import (
	"net/netip"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
)

// A Config is the content of a file, with every default filled in. The tags are the names in the file; the command's
// documentation explains the fields.
type Config struct {
	Listen   []Listen       `conf:"listen"`
	Admin    Admin          `conf:"admin"`
	Backend  Backend        `conf:"backend"`
	Shedder  Shedder        `conf:"shedder"`
	Redis    *Redis         `conf:"redis"`
	Trusted  []netip.Prefix `conf:"trusted"`
	Client   Client         `conf:"client"`
	Priority Priority       `conf:"priority"`
	MaxBody  Size           `conf:"maxBody"`
	Routes   []Route        `conf:"routes"`
	Log      Log            `conf:"log"`
	Drain    Drain          `conf:"drain"`
	DryRun   bool           `conf:"dryRun"`
	Rules    string         `conf:"rules"`
	State    string         `conf:"state"`
}

// Listen is an address for clients.
type Listen struct {
	Address                 string         `conf:"address"`
	TLS                     *TLS           `conf:"tls"`
	ProxyProtocol           []netip.Prefix `conf:"proxyProtocol"`
	MaxConnections          int            `conf:"maxConnections"`
	MaxConnectionsPerClient int            `conf:"maxConnectionsPerClient"`
	AcceptRate              limiter.Rate   `conf:"acceptRate"`
	MaxHeader               Size           `conf:"maxHeader"`
	MaxStreams              int            `conf:"maxStreams"`
	MaxUseless              int            `conf:"maxUseless"`
	HeaderTimeout           time.Duration  `conf:"headerTimeout"`
	IdleTimeout             time.Duration  `conf:"idleTimeout"`
	BodyTimeout             time.Duration  `conf:"bodyTimeout"`
	AnswerTimeout           time.Duration  `conf:"answerTimeout"`
}

// TLS names the files of a certificate.
type TLS struct {
	Cert string `conf:"cert"`
	Key  string `conf:"key"`
}

// Admin is the address of the operator's pages, or "off".
type Admin struct {
	Address string `conf:"address"`
}

// Backend is the protected service.
type Backend struct {
	URLs           []string      `conf:"urls"`
	Host           string        `conf:"host"`
	CPU            string        `conf:"cpu"`
	PassLoad       bool          `conf:"passLoad"`
	ConnectTimeout time.Duration `conf:"connectTimeout"`
	MaxConnections int           `conf:"maxConnections"`
	CA             string        `conf:"ca"`
	TimeoutHeader  string        `conf:"timeoutHeader"`
	Abandoned      time.Duration `conf:"abandoned"`
	Health         *Health       `conf:"health"`
	Eject          Eject         `conf:"eject"`
	Retry          *Retry        `conf:"retry"`
}

// Health is how backends are checked.
type Health struct {
	Path      string        `conf:"path"`
	Every     time.Duration `conf:"every"`
	Timeout   time.Duration `conf:"timeout"`
	Failures  int           `conf:"failures"`
	Successes int           `conf:"successes"`
}

// Eject is when a backend gets no requests for a while because of its answers.
type Eject struct {
	FailureRate float64       `conf:"failureRate"`
	Consecutive int           `conf:"consecutive"`
	OpenFor     time.Duration `conf:"openFor"`
	Share       float64       `conf:"share"`
}

// Retry is when a request is sent again.
type Retry struct {
	Attempts int           `conf:"attempts"`
	Backoff  time.Duration `conf:"backoff"`
	Tokens   int           `conf:"tokens"`
}

// Shedder holds the numbers of the shedder.
type Shedder struct {
	SLO          time.Duration `conf:"slo"`
	CPUThreshold float64       `conf:"cpuThreshold"`
	MinLimit     int           `conf:"minLimit"`
	MaxLimit     int           `conf:"maxLimit"`
	MaxQueue     int           `conf:"maxQueue"`
	MaxWait      time.Duration `conf:"maxWait"`
	FairRoutes   bool          `conf:"fairRoutes"`
	Disabled     bool          `conf:"disabled"`
}

// Redis is where processes share limits.
type Redis struct {
	URL          string        `conf:"url"`
	PasswordFile string        `conf:"passwordFile"`
	CA           string        `conf:"ca"`
	Cluster      bool          `conf:"cluster"`
	Prefix       string        `conf:"prefix"`
	Nodes        int           `conf:"nodes"`
	Timeout      time.Duration `conf:"timeout"`
	Term         time.Duration `conf:"term"`
	Fallback     string        `conf:"fallback"`
}

// The values of Redis.Fallback.
const (
	FallbackDivide = "divide"
	FallbackAllow  = "allow"
	FallbackRefuse = "refuse"
)

// Client says who a request belongs to.
type Client struct {
	Key              string `conf:"key"`
	Header           string `conf:"header"`
	MaxConcurrent    int    `conf:"maxConcurrent"`
	RateLimitHeaders bool   `conf:"rateLimitHeaders"`
}

// Priority says which priorities of clients count.
type Priority struct {
	Header     string `conf:"header"`
	LowerFirst bool   `conf:"lowerFirst"`
	Browser    bool   `conf:"browser"`
}

// A Route is a kind of request with limits of its own.
type Route struct {
	Match       string             `conf:"match"`
	Name        string             `conf:"name"`
	Priority    *spillway.Priority `conf:"priority"`
	Deadline    time.Duration      `conf:"deadline"`
	Rate        *Rate              `conf:"rate"`
	Quotas      []Quota            `conf:"quotas"`
	Concurrency *Concurrency       `conf:"concurrency"`
	MaxBody     Size               `conf:"maxBody"`
	Exempt      bool               `conf:"exempt"`
}

// Rate limits the requests of a route in time.
type Rate struct {
	Rate     limiter.Rate  `conf:"rate"`
	Burst    int           `conf:"burst"`
	MaxWait  time.Duration `conf:"maxWait"`
	MaxQueue int           `conf:"maxQueue"`
	Per      string        `conf:"per"`
	Shared   bool          `conf:"shared"`
}

// Rule returns the rule with the given name: a bucket, or a shaper if requests may wait.
func (r *Rate) Rule(name string) limiter.Rule {
	if r.MaxWait > 0 {
		return limiter.Shaper{Name: name, Rate: r.Rate, Slack: r.Burst, MaxWait: r.MaxWait, MaxQueue: r.MaxQueue}
	}
	return limiter.Bucket{Name: name, Rate: r.Rate, Burst: r.Burst}
}

// Scale returns the rule of a Rate for n backends.
func Scale(rule limiter.Rule, n int) limiter.Rule {
	switch r := rule.(type) {
	case limiter.Bucket:
		r.Rate.Tokens *= n
		r.Burst *= n
		return r
	case limiter.Shaper:
		r.Rate.Tokens *= n
		r.Slack *= n
		return r
	}
	return rule
}

// Tunable reports whether the numbers can change while spillwayd runs: all but those of clients whose requests may wait.
func (r *Rate) Tunable() bool { return r.MaxWait == 0 || r.Per != PerClient }

// Quota limits the requests of a route in each period of a calendar.
type Quota struct {
	Limit  int    `conf:"limit"`
	Every  string `conf:"every"`
	Zone   string `conf:"zone"`
	Per    string `conf:"per"`
	Shared bool   `conf:"shared"`
}

// Rule returns the rule of a valid Quota with the given name.
func (q *Quota) Rule(name string) limiter.FixedWindow {
	zone, err := time.LoadLocation(q.Zone)
	if err != nil {
		zone = time.UTC
	}
	return limiter.FixedWindow{Name: name, Limit: q.Limit, Calendar: calendars[q.Every], Location: zone}
}

// calendars are the values of Quota.Every.
var calendars = map[string]limiter.Calendar{
	"minute": limiter.EveryMinute, "hour": limiter.EveryHour, "day": limiter.EveryDay, "month": limiter.EveryMonth,
}

// Concurrency limits the requests of a route that run at once.
type Concurrency struct {
	Limit  int    `conf:"limit"`
	Per    string `conf:"per"`
	Shared bool   `conf:"shared"`
}

// The values of Per.
const (
	PerClient  = "client"
	PerAll     = "all"
	PerBackend = "backend"
)

// Log says what is logged about requests.
type Log struct {
	Access   string `conf:"access"`
	Refusals int    `conf:"refusals"`
}

// Drain says how long the end takes.
type Drain struct {
	Delay   time.Duration `conf:"delay"`
	Timeout time.Duration `conf:"timeout"`
}
