package main

import (
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/listen"
	"github.com/spillway-go/spillway/console"
	"github.com/spillway-go/spillway/stats"
	"github.com/spillway-go/spillway/telemetry/prom"
)

// An admin serves the pages for operators on an address of its own, so that an overload does not reach them.
type admin struct {
	listener net.Listener
	server   *http.Server
	page     *console.Page
}

func newAdmin(s *server) (*admin, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", s.conf.Admin.Address)
	if err != nil {
		return nil, err
	}
	sources := maps.Clone(s.proxy.Sources())
	for i, l := range s.accepted {
		sources[s.conf.Listen[i].Address] = connections{l}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(prom.New(sources), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a := &admin{listener: listener, page: console.New(sources, &console.Options{Title: "spillwayd", Rules: s.proxy.Rules()})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.proxy.Ready() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/debug/spillway/", a.page)
	mux.Handle("GET /{$}", http.RedirectHandler("/debug/spillway/", http.StatusFound))
	const wait = 10 * time.Second
	a.server = &http.Server{Handler: mux, ReadHeaderTimeout: wait, ReadTimeout: wait, WriteTimeout: 3 * wait, IdleTimeout: 6 * wait}
	return a, nil
}

// start answers requests. It calls failed if that ends.
func (a *admin) start(failed context.CancelCauseFunc) {
	go func() {
		if err := a.server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
			failed(err)
		}
	}()
}

func (a *admin) close() {
	a.server.Close()
	a.listener.Close()
	a.page.Close()
}

// connections has the figures of a Listener.
type connections struct{ *listen.Listener }

// Metrics yields the figures of the Listener.
func (c connections) Metrics() iter.Seq[stats.Metric] {
	return func(yield func(stats.Metric) bool) {
		s := c.Counts()
		for _, m := range []stats.Metric{
			{Name: "spillwayd.connections.open", Help: "Open connections.", Unit: "{connection}", Kind: stats.KindGauge, Value: float64(s.Open)},
			counted("accepted", s.Accepted-s.OverClient-s.BadProxy),
			counted("flooding", s.Flooding),
			counted("over_client", s.OverClient),
			counted("bad_proxy", s.BadProxy),
		} {
			if !yield(m) {
				return
			}
		}
	}
}

func counted(result string, n int64) stats.Metric {
	return stats.Metric{
		Name: "spillwayd.connections", Help: "Connections, by what became of them.", Unit: "{connection}", Kind: stats.KindCounter,
		Labels: []stats.Label{{Name: "result", Value: result}}, Value: float64(n),
	}
}
