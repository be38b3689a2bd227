// Package upstream sends requests to the backends of spillwayd: to the one with the least load, unless it fails.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
	"github.com/spillway-go/spillway/internal/feed"
	"github.com/spillway-go/spillway/internal/orca"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/stats"
)

// A Pool is an [http.RoundTripper] that sends each request to one of its backends. It is made by [New], safe for concurrent
// use, and owns a goroutine for each backend that it checks, until Close.
type Pool struct {
	o         config.Backend
	logger    *slog.Logger
	backends  []*backend
	transport *http.Transport
	breakers  *breaker.Keyed        // nil if there is one backend
	budget    *httpgate.RetryBudget // nil if nothing is sent again
	rt        http.RoundTripper     // the pool, or the retries around it
	allDown   atomic.Bool           // too many backends are down: the checks do not count

	counting sync.Mutex   // while the backends are counted
	up       atomic.Int64 // backends that take requests, at least 1

	stop    context.CancelFunc
	running sync.WaitGroup
}

// errNoBackend is the refusal while no backend takes requests.
var errNoBackend = &spillway.Rejection{Policy: "backends", Reason: "all ejected", RetryAfter: time.Second}

// New returns a Pool with the options o, which are valid, and begins to check its backends. A nil logger is slog.Default.
func New(o *config.Backend, logger *slog.Logger) (*Pool, error) {
	if logger == nil {
		logger = slog.Default()
	}
	p := &Pool{o: *o, logger: logger}
	var err error
	if p.backends, err = newBackends(o.URLs); err != nil {
		return nil, err
	}
	if p.transport, err = newTransport(o, p.backends); err != nil {
		return nil, err
	}
	if err := p.gateBackends(); err != nil {
		return nil, err
	}
	p.count()
	p.rt = roundTripper(p.send)
	if err := p.addRetries(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	if o.Health != nil {
		for _, b := range p.backends {
			p.running.Go(func() { p.check(ctx, b) })
		}
	}
	return p, nil
}

// gateBackends gives each of several backends a gate that counts its requests and ejects it when it fails.
func (p *Pool) gateBackends() error {
	if len(p.backends) == 1 { // nothing to choose, and a breaker would only lengthen its restarts
		p.backends[0].rt = p.backends[0].start.around(p.twice)
		if p.o.TimeoutHeader == "" {
			return nil
		}
	} else {
		byKey := map[string]*backend{}
		for _, b := range p.backends {
			byKey[b.key] = b
		}
		keyed, err := breaker.NewKeyed(&breaker.KeyedOptions{
			Name: "backends", MaxKeys: 2 * config.MaxBackends, MaxOpen: p.o.Eject.Share,
			New: func(key string) (breaker.Member, error) {
				return breaker.New(&breaker.Options{
					Name: "backends", FailureRate: p.o.Eject.FailureRate, Consecutive: p.o.Eject.Consecutive, OpenFor: p.o.Eject.OpenFor,
					OnEvent: p.ejection(byKey[key]),
				})
			},
		})
		if err != nil {
			return fmt.Errorf("backend.eject: %w", err)
		}
		p.breakers = keyed
	}
	for _, b := range p.backends {
		gate := spillway.New(&b.meter)
		if p.breakers != nil {
			gate = spillway.New(&b.meter, p.breakers)
		}
		request := spillway.Request{Key: b.key}
		rt, err := httpgate.NewTransport(gate, b.start.around(p.twice), &httpgate.TransportOptions{
			Request:       func(*http.Request) spillway.Request { return request },
			Outcome:       outcome,
			TimeoutHeader: p.o.TimeoutHeader,
		})
		if err != nil {
			return fmt.Errorf("backend.timeoutHeader: %w", err)
		}
		b.rt = rt
	}
	return nil
}

// ejection returns the hook that notes when the breaker of b opens and closes. The shared breaker has no backend.
func (p *Pool) ejection(b *backend) func(breaker.Event) {
	if b == nil {
		return nil
	}
	return func(e breaker.Event) {
		switch e.To {
		case breaker.Open:
			b.ejectedUntil.Store(e.Time.Add(e.OpenFor).UnixNano())
			p.count()
			p.logger.Warn("spillwayd: backend ejected", slog.String("backend", b.name), slog.String("reason", e.Reason),
				slog.Duration("for", e.OpenFor))
		case breaker.Closed:
			b.ejectedUntil.Store(0)
			p.count()
			p.logger.Info("spillwayd: backend takes requests again", slog.String("backend", b.name))
		}
	}
}

// outcome says what an answer means for the breaker of a backend. A refusal is no failure: the backend is up. Nor is a failure for
// which the client may be to blame.
func outcome(r *http.Request, res *http.Response, err error) spillway.Outcome {
	if res != nil && err == nil && refused(res) {
		return spillway.Ignored
	}
	out := httpgate.DefaultTransportOutcome(r, res, err)
	if out == spillway.Failure && Blamed(r) {
		return spillway.Ignored
	}
	return out
}

// refused reports whether the backend refused the request for lack of room.
func refused(res *http.Response) bool {
	return res.StatusCode == http.StatusServiceUnavailable || res.StatusCode == http.StatusTooManyRequests ||
		first(res.Header["X-Envoy-Overloaded"]) == "true"
}

// first returns the first value of a field, or "".
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// addRetries lets requests be sent again, if the options say so.
func (p *Pool) addRetries() error {
	r := p.o.Retry
	if r == nil {
		return nil
	}
	var err error
	if p.budget, err = httpgate.NewRetryBudget(&httpgate.RetryBudgetOptions{MaxTokens: r.Tokens}); err != nil {
		return fmt.Errorf("backend.retry: %w", err)
	}
	p.rt, err = httpgate.NewTransport(spillway.New(), p.rt, &httpgate.TransportOptions{
		Budget: p.budget, Retry: &httpgate.Retry{Attempts: r.Attempts, Backoff: r.Backoff},
	})
	if err != nil {
		return fmt.Errorf("backend.retry: %w", err)
	}
	return nil
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// twice sends r, and again if its connection broke and r has no body and is safe to repeat. In HTTP/1 a connection goes back to the
// pool just before its answer is delivered. If the next request on it breaks off its body in that moment, net/http takes the answer
// for lost, and returns the error of the other request: a stranger who breaks his uploads would fail the requests of others.
func (p *Pool) twice(r *http.Request) (*http.Response, error) {
	res, err := p.transport.RoundTrip(r)
	if err == nil || r.Body != nil && r.Body != http.NoBody || r.Method != http.MethodGet && r.Method != http.MethodHead ||
		r.Context().Err() != nil || !strings.Contains(err.Error(), "HTTP/1.x transport connection broken") {
		return res, err
	}
	return p.transport.RoundTrip(r)
}

// RoundTrip sends r, whose URL may have any scheme and host, to a backend. The error is a *[spillway.Rejection] if no backend takes
// requests.
func (p *Pool) RoundTrip(r *http.Request) (*http.Response, error) { return p.rt.RoundTrip(r) }

// send sends r once.
func (p *Pool) send(r *http.Request) (*http.Response, error) {
	now := time.Now()
	b := p.pick(now)
	if b == nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, errNoBackend
	}
	b.address(r, p.o.Host == "backend")
	res, err := b.rt.RoundTrip(r)
	b.answered(r, res, err, now)
	if res == nil {
		if r.Context().Err() == nil && !Blamed(r) && spillway.RejectionOf(err) == nil {
			b.complain(p.logger, now, err)
		}
		return nil, err
	}
	b.watch(res, p.o.PassLoad)
	if !p.o.PassLoad {
		delete(res.Header, orca.Header)
		delete(res.Header, "Spillway-Overload")
	}
	return res, err
}

// pick returns the backend with the least load, or nil if none takes requests.
func (p *Pool) pick(now time.Time) *backend {
	if len(p.backends) == 1 {
		return p.backends[0]
	}
	for {
		b := p.least(now)
		if b == nil || b.taken(now) {
			return b
		}
	}
}

// least returns the backend with the least load of those that take requests, or nil.
func (p *Pool) least(now time.Time) (best *backend) {
	checks := !p.allDown.Load()
	least := 0.0
	start := rand.IntN(len(p.backends))
	for i := range p.backends {
		b := p.backends[(start+i)%len(p.backends)]
		if checks && b.down.Load() || !b.takes(now) {
			continue
		}
		if load := b.load(now); best == nil || load < least {
			best, least = b, load
		}
	}
	return best
}

// Ready reports whether at least one backend is up, as far as is known.
func (p *Pool) Ready() bool {
	for _, b := range p.backends {
		if !b.down.Load() && b.takes(time.Now()) {
			return true
		}
	}
	return false
}

// Up returns the number of backends that take requests, or 1 if none does.
func (p *Pool) Up() int { return int(p.up.Load()) }

// Metrics yields the figures of the backends.
func (p *Pool) Metrics() iter.Seq[stats.Metric] {
	parts := make([]iter.Seq[stats.Metric], 0, len(p.backends)+2)
	for _, b := range p.backends {
		parts = append(parts, b.metrics())
	}
	if p.breakers != nil {
		parts = append(parts, p.breakers.Metrics())
	}
	if p.budget != nil {
		parts = append(parts, p.budget.Metrics())
	}
	return feed.Join(parts...)
}

// Close ends the checks and closes idle connections. Requests under way continue.
func (p *Pool) Close() error {
	p.stop()
	p.running.Wait()
	p.transport.CloseIdleConnections()
	return nil
}

// errNoReport says that the load of the backends is unknown.
var errNoReport = errors.New("spillwayd: no backend has reported its CPU in the last 3 s")

// CPU returns the mean CPU usage that the backends report, as a share of the CPU that they may use. It returns an error if none has
// reported lately.
func (p *Pool) CPU() (float64, error) {
	now, sum, n := time.Now(), 0.0, 0
	for _, b := range p.backends {
		if l, ok := b.report.get(now); ok && l.CPU > 0 { // 0 is what reporters send for "unknown"
			sum, n = sum+l.CPU, n+1
		}
	}
	if n == 0 {
		return 0, errNoReport
	}
	return min(sum/float64(n), 1), nil
}

// Application returns the mean application utilization that the backends report. It is 0 if none has reported lately.
func (p *Pool) Application(now time.Time) (float64, error) {
	sum, n := 0.0, 0
	for _, b := range p.backends {
		if l, ok := b.report.get(now); ok && l.Application > 0 {
			sum, n = sum+l.Application, n+1
		}
	}
	return sum / float64(max(n, 1)), nil
}
