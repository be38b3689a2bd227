// Package proxy is the handler of spillwayd: the gates in front, the reverse proxy behind them, and what stands between.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
	"github.com/spillway-go/spillway/cmd/spillwayd/internal/listen"
	"github.com/spillway-go/spillway/cmd/spillwayd/internal/shared"
	"github.com/spillway-go/spillway/cmd/spillwayd/internal/upstream"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/rules"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
)

// A Proxy is the handler for clients. It is made by [New], safe for concurrent use, and owns the goroutines of its pool until
// Close.
type Proxy struct {
	conf     *config.Config
	pool     *upstream.Pool
	limits   *shared.Limits // nil without Redis
	shed     *shedder.Shedder
	patterns *http.ServeMux    // nil if there are no routes
	routes   map[string]*route // by pattern
	rest     *route            // for requests without a match
	peers    peers
	log      accessLog
	set      *rules.Set
	grpc     bool // the backends speak HTTP/2, which gRPC needs
	draining atomic.Bool
}

// New returns a Proxy for a valid Config. A nil logger is slog.Default.
func New(c *config.Config, logger *slog.Logger) (*Proxy, error) {
	if logger == nil {
		logger = slog.Default()
	}
	pool, err := upstream.New(&c.Backend, logger)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		conf: c, pool: pool, routes: map[string]*route{}, peers: peers{trusted: c.Trusted, priority: http.CanonicalHeaderKey(c.Priority.Header)},
		grpc: strings.HasPrefix(c.Backend.URLs[0], "h2c:") || strings.HasPrefix(c.Backend.URLs[0], "https:"),
		log:  accessLog{logger: logger, all: c.Log.Access == "on", perSecond: int64(c.Log.Refusals)},
	}
	if c.Redis != nil {
		p.limits, err = shared.New(c.Redis, logger)
	}
	if err == nil {
		err = p.build()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// build makes the shedder, the routes and the targets of the rules.
func (p *Proxy) build() error {
	cpu, err := stats.NewCPU(p.cpuOptions())
	if err != nil {
		return err
	}
	s := &p.conf.Shedder
	p.shed, err = shedder.New(&shedder.Options{
		SLO: s.SLO, CPUThreshold: s.CPUThreshold, MinLimit: s.MinLimit, MaxLimit: s.MaxLimit, MaxQueue: s.MaxQueue, MaxWait: s.MaxWait,
		FairRoutes: s.FairRoutes, Disabled: s.Disabled, CPU: cpu,
		Signals: []shedder.Signal{{Name: "backend", Read: p.pool.Application, Threshold: 1}},
	})
	if err != nil {
		return err
	}
	b, err := newBuilder(p)
	if err != nil {
		return err
	}
	if p.rest, err = b.route(&config.Route{Name: "default"}); err != nil {
		return err
	}
	if len(p.conf.Routes) > 0 {
		p.patterns = http.NewServeMux()
	}
	for i := range p.conf.Routes {
		r := &p.conf.Routes[i]
		if p.routes[r.Match], err = b.route(r); err != nil {
			return fmt.Errorf("routes[%d]: %w", i, err)
		}
		p.patterns.Handle(r.Match, http.NotFoundHandler())
	}
	p.set, err = rules.New(b.targets)
	return err
}

// cpuOptions return how the CPU of the backend is read.
func (p *Proxy) cpuOptions() *stats.CPUOptions {
	if p.conf.Backend.CPU == "machine" {
		return &stats.CPUOptions{Source: stats.HostCPU()}
	}
	return &stats.CPUOptions{Read: p.pool.CPU}
}

// Handler returns the handler for a listener. A client may keep it waiting for its body for the time body, and for each part of an
// answer for the time answer.
func (p *Proxy) Handler(body, answer time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			pw := newPacedWriter(w, answer)
			defer pw.end()
			w = pw
			defer p.noteReset(r, time.Now())
		}
		if r.Body != http.NoBody {
			most := body
			if p.grpc && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				most = 0 // its streams may be silent for hours
			}
			var b *upstream.Body
			r, b = upstream.WithBody(w, r, most)
			defer b.End()
		}
		p.serve(w, r)
	})
}

// noteReset notes a request that its client reset at once.
func (p *Proxy) noteReset(r *http.Request, began time.Time) {
	const atOnce = 5 * time.Millisecond // sooner than a client can be disappointed
	if r.Context().Err() != nil && time.Since(began) < atOnce && !p.peers.trusts(r.RemoteAddr) {
		listen.Useless(r.Context())
	}
}

// noteRefusal notes a request that a limit of its client refused.
func (p *Proxy) noteRefusal(r *http.Request) {
	if !p.peers.trusts(r.RemoteAddr) {
		listen.Useless(r.Context())
	}
}

// serve answers a request of a client.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	if p.draining.Load() && len(r.Header["Upgrade"]) == 0 {
		w.Header()["Connection"] = []string{"close"} // in HTTP/2 it becomes a GOAWAY
	}
	if r.Method == http.MethodConnect {
		http.Error(w, "CONNECT is not supported", http.StatusMethodNotAllowed)
		return
	}
	rt := p.routeOf(r)
	if rt.maxBody > 0 && !limitBody(w, r, rt.maxBody) {
		return
	}
	rt.handler.ServeHTTP(w, r)
}

// routeOf returns the route of r. A request that the mux would redirect, such as one for "//items", has the route of the clean path,
// since the backend may clean it too.
func (p *Proxy) routeOf(r *http.Request) *route {
	if p.patterns == nil {
		return p.rest
	}
	_, pattern := p.patterns.Handler(r)
	if rt := p.routes[pattern]; rt != nil {
		return rt
	}
	return p.rest
}

// limitBody answers a request whose body is announced as too large, and reports false. Other bodies end with an error at the limit.
func limitBody(w http.ResponseWriter, r *http.Request, most int64) bool {
	if r.ContentLength > most {
		w.Header()["Connection"] = []string{"close"} // rather than read it
		http.Error(w, "the body of the request is too large", http.StatusRequestEntityTooLarge)
		return false
	}
	if b := upstream.BodyOf(r.Context()); b != nil && r.ContentLength < 0 {
		b.ReadCloser = http.MaxBytesReader(w, b.ReadCloser, most)
	}
	return true
}

// reverse returns the handler that passes requests on.
func (p *Proxy) reverse() http.Handler {
	var h http.Handler = &httputil.ReverseProxy{
		Rewrite: p.peers.rewrite, Transport: p.pool, BufferPool: new(buffers), ErrorHandler: answerError,
		ErrorLog: slog.NewLogLogger(p.log.logger.Handler(), slog.LevelDebug), ModifyResponse: arrived,
	}
	h = newCalls(p.conf.Backend.Abandoned).outlive(h)
	if p.log.all {
		h = p.log.around(h)
	}
	return h
}

// answerError answers a request without an answer of the backend.
func answerError(w http.ResponseWriter, r *http.Request, err error) {
	body := upstream.BodyOf(r.Context())
	if body == nil || body.Err() == nil {
		if wait := httpgate.ClientTimeout(r); body != nil && wait > 0 && time.Since(body.Came) >= wait {
			err = context.DeadlineExceeded // the timer of the backend was the first
		}
		httpgate.ProxyError(nil)(w, r, err)
		return
	}
	w.Header()["Connection"] = []string{"close"}
	tooLarge := (*http.MaxBytesError)(nil)
	switch {
	case errors.As(body.Err(), &tooLarge):
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	case errors.Is(body.Err(), os.ErrDeadlineExceeded):
		w.WriteHeader(http.StatusRequestTimeout)
	default:
		w.WriteHeader(http.StatusBadRequest)
	}
}

// Shedder returns the shedder of all routes.
func (p *Proxy) Shedder() *shedder.Shedder { return p.shed }

// Drain makes answers ask clients to use other connections from now on.
func (p *Proxy) Drain() { p.draining.Store(true) }

// Ready reports whether the Proxy takes requests: a backend is up, and Drain was not called.
func (p *Proxy) Ready() bool { return !p.draining.Load() && p.pool.Ready() }

// Rules returns the set of the numbers that can change.
func (p *Proxy) Rules() *rules.Set { return p.set }

// LongLived returns the number of open connections that have left their gates, such as WebSockets.
func (p *Proxy) LongLived() int64 {
	n := p.rest.gate.Stats().LongLived
	for _, rt := range p.routes {
		n += rt.gate.Stats().LongLived
	}
	return n
}

// Sources returns what the metrics and the live page show, by name.
func (p *Proxy) Sources() map[string]stats.Source {
	sources := map[string]stats.Source{"backends": p.pool, "rules": p.set, "default": p.rest.gate}
	for _, rt := range p.routes {
		sources[rt.name] = rt.gate
	}
	return sources
}

// Close ends the goroutines, gives back what was taken from shared limits, and closes idle connections to the backends.
func (p *Proxy) Close() error {
	if p.limits != nil {
		p.limits.Close()
	}
	return p.pool.Close()
}

// A route is a kind of request.
type route struct {
	name    string
	maxBody int64
	gate    *httpgate.Middleware
	handler http.Handler
}

// request returns the function that describes requests of a route to its policies.
func (b *builder) request(r *config.Route) func(*http.Request) spillway.Request {
	key, asked, fixed, name, most := b.key, b.asked, r.Priority, r.Name, r.Deadline
	return func(r *http.Request) spillway.Request {
		req := spillway.Request{Route: name}
		if key != nil {
			req.Key = key(r)
		}
		switch {
		case fixed != nil:
			req.Priority = *fixed
		case asked != nil:
			req.Priority = asked(r)
		}
		if most > 0 {
			req.Timeout = timeout(httpgate.ClientTimeout(r), most)
		}
		return req
	}
}

// timeout returns how long a client waits that asks for the given time, or for none if it is 0.
func timeout(asked, most time.Duration) time.Duration {
	if asked == 0 {
		return most
	}
	return min(asked, most)
}
