package caddy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/stats"
	"github.com/spillway-go/spillway/telemetry/prom"
)

//nolint:gochecknoinits // Caddy finds its modules this way
func init() {
	caddy.RegisterModule(new(Handler))
	registerDirective()
}

// A Handler is the Caddy module http.handlers.spillway. Its fields are the configuration in JSON; see the package for what they
// mean. Caddy makes it, and calls its methods.
type Handler struct {
	// Name is the name in metrics. Handlers with the same Name and settings share their state, also across reloads. If Name
	// is empty, the handler has a state of its own and no metrics.
	Name string `json:"name,omitempty"`
	// Shedder tunes the shedder. If Shedder is nil, it has the defaults.
	Shedder *Shedder `json:"shedder,omitempty"`
	// Rates limit requests per time.
	Rates []Rate `json:"rates,omitempty"`
	// Concurrency limits requests in flight.
	Concurrency []Concurrency `json:"concurrency,omitempty"`
	// Breaker stops requests while the handlers behind fail. If Breaker is nil, there is none.
	Breaker *Breaker `json:"breaker,omitempty"`
	// Priority is a placeholder with the priority of a request: sheddable, normal, critical, or one of them with an offset such as
	// normal-1. Any other value is normal.
	Priority string `json:"priority,omitempty"`
	// RateLimitHeaders adds RateLimit and RateLimit-Policy to each answer, with the figures of Rates.
	RateLimitHeaders bool `json:"rate_limit_headers,omitempty"`
	// DryRun counts what would be refused, and refuses nothing.
	DryRun bool `json:"dry_run,omitempty"`

	state    *state
	settings string
	names    *nameKey // held in the pool of names
}

// Shedder configures the adaptive shedder, as shedder.Options does.
type Shedder struct {
	Off          bool           `json:"off,omitempty"`           // Off leaves the shedder out.
	CPU          string         `json:"cpu,omitempty"`           // CPU says whose CPU counts: process, machine or off; "" is process.
	CPUThreshold float64        `json:"cpu_threshold,omitempty"` // CPUThreshold is the usage that counts as overload; 0 is 0.9.
	SLO          caddy.Duration `json:"slo,omitempty"`           // SLO is the longest latency at the 99th percentile; 0 is none.
	MinLimit     int            `json:"min_limit,omitempty"`     // MinLimit is the number in flight below which nothing is refused.
	MaxLimit     int            `json:"max_limit,omitempty"`     // MaxLimit is the greatest number in flight under overload; 0 is none.
	MaxShed      float64        `json:"max_shed,omitempty"`      // MaxShed is the greatest share to refuse; 0 is no bound.
	Key          string         `json:"key,omitempty"`           // Key is the placeholder whose values share fairly.
}

// A Rate limits requests per time with a token bucket.
type Rate struct {
	Name    string       `json:"name"`               // Name is the name in refusals and header fields. It is required.
	Rate    limiter.Rate `json:"rate"`               // Rate is a text such as "100/s". It is required.
	Burst   int          `json:"burst,omitempty"`    // Burst is the size of the bucket; 0 is the tokens of Rate.
	Key     string       `json:"key,omitempty"`      // Key is a placeholder; each value has a limit. If Key is empty, all share one.
	MaxKeys int          `json:"max_keys,omitempty"` // MaxKeys is the greatest number of values kept; 0 is 2^20.
}

// A Concurrency limits requests in flight.
type Concurrency struct {
	Name    string `json:"name"`               // Name is the name in refusals. It is required.
	Limit   int    `json:"limit"`              // Limit is the greatest number, at least 1. It is required.
	Key     string `json:"key,omitempty"`      // Key is a placeholder; each value has a limit. If Key is empty, all share one.
	MaxKeys int    `json:"max_keys,omitempty"` // MaxKeys is the greatest number of values kept; 0 is 2^20.
}

// Breaker configures a breaker, as breaker.Options does. A field that is 0 has the default.
type Breaker struct {
	FailureRate float64        `json:"failure_rate,omitempty"` // FailureRate is the share of failures that opens it; 0 is 0.5.
	Consecutive int            `json:"consecutive,omitempty"`  // Consecutive is how many failures in a row open it; 0 is 10.
	MinCalls    int            `json:"min_calls,omitempty"`    // MinCalls is how many answers a rate needs; 0 is 20.
	Window      caddy.Duration `json:"window,omitempty"`       // Window is how far back answers count; 0 is 10 s.
	OpenFor     caddy.Duration `json:"open_for,omitempty"`     // OpenFor is how long it stays open; 0 is 5 s.
	SlowCall    caddy.Duration `json:"slow_call,omitempty"`    // SlowCall is the latency of a slow call; 0 is none.
}

// CaddyModule returns the name of the module.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.spillway", New: func() caddy.Module { return new(Handler) }}
}

// States of named handlers stay here while a configuration uses them, so that a reload keeps them. names has the settings of each
// name of a configuration.
//
//nolint:gochecknoglobals // Caddy keeps what outlives a configuration this way
var states, names = caddy.NewUsagePool(), caddy.NewUsagePool()

// A nameKey is a name in one configuration, which is known by its registry.
type nameKey struct {
	registry any
	name     string
}

// Destruct lets a pool forget a state. A state owns no goroutine.
func (*state) Destruct() error { return nil }

type text string

func (text) Destruct() error { return nil }

// Provision builds the policies, or takes those of an earlier configuration. The error names the invalid field.
func (h *Handler) Provision(ctx caddy.Context) error {
	settings, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if h.Name == "" {
		h.state, err = h.build()
		return err
	}
	got, _, err := states.LoadOrNew(string(settings), func() (caddy.Destructor, error) { return h.build() })
	if err != nil {
		return err
	}
	h.settings = string(settings)
	h.state, _ = got.(*state)
	return h.claim(ctx)
}

// claim makes the name of h stand for its settings in this configuration, and shows its metrics there once.
func (h *Handler) claim(ctx caddy.Context) error {
	registry := ctx.GetMetricsRegistry()
	h.names = &nameKey{registry: registry, name: h.Name}
	other, loaded := names.LoadOrStore(*h.names, text(h.settings))
	if loaded {
		if other != text(h.settings) {
			return fmt.Errorf("spillway: name: %q has other settings elsewhere in this configuration", h.Name)
		}
		return nil
	}
	return registry.Register(prom.New(map[string]stats.Source{h.Name: h.state.gate}))
}

// Validate returns an error that names two limits of one name.
func (h *Handler) Validate() error {
	seen := map[string]bool{}
	for _, name := range h.limitNames() {
		if name == "" {
			return errors.New(`spillway: a rate or concurrency needs a name, got ""`)
		}
		if seen[name] {
			return fmt.Errorf("spillway: two limits have the name %q", name)
		}
		seen[name] = true
	}
	return nil
}

func (h *Handler) limitNames() (all []string) {
	for _, r := range h.Rates {
		all = append(all, r.Name)
	}
	for _, c := range h.Concurrency {
		all = append(all, c.Name)
	}
	return all
}

// Cleanup lets go of a state that other configurations may still use.
func (h *Handler) Cleanup() error {
	var errs []error
	if h.settings != "" {
		_, err := states.Delete(h.settings)
		errs = append(errs, err)
	}
	if h.names != nil {
		_, err := names.Delete(*h.names)
		errs = append(errs, err)
	}
	h.settings, h.names = "", nil
	return errors.Join(errs...)
}

// ServeHTTP answers r with a refusal, or has next answer it.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	c := &call{next: next}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	h.state.gate.Handler(c).ServeHTTP(w, r)
	return c.err
}

type callKey struct{}

// A call is one request. Handlers of Caddy return errors, which Caddy answers after the gate has been left.
type call struct {
	next caddyhttp.Handler
	err  error
}

func (c *call) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.err = c.next.ServeHTTP(w, r) }

// outcome returns the outcome of an answer, or of the error that Caddy will answer.
func outcome(r *http.Request, status int) spillway.Outcome {
	if c, ok := r.Context().Value(callKey{}).(*call); ok && c.err != nil {
		status = http.StatusInternalServerError
		var e caddyhttp.HandlerError
		if errors.As(c.err, &e) && e.StatusCode != 0 {
			status = e.StatusCode
		}
	}
	return httpgate.DefaultOutcome(r.Context(), status)
}

// refuse answers a refused request, and tells the access log why.
func refuse(w http.ResponseWriter, r *http.Request, rej *spillway.Rejection) {
	caddyhttp.SetVar(r.Context(), "spillway_policy", rej.Policy)
	caddyhttp.SetVar(r.Context(), "spillway_reason", rej.Reason)
	httpgate.WriteRefusal(w, r, rej)
}
