package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/console"
	"github.com/spillway-go/spillway/deadline"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
	"github.com/spillway-go/spillway/telemetry/prom"
)

const (
	slo       = 500 * time.Millisecond // later answers are worthless
	patience  = 2 * time.Second        // the most time that any request gets
	perTenant = 50                     // requests per second
	atOnce    = 25                     // requests of a tenant
)

// A shop is the running service.
type shop struct {
	store    store
	tenants  *limiter.Keyed
	shed     *shedder.Shedder
	gate     *spillway.Gate // in front of HTTP and gRPC alike
	payments *payments
	page     *console.Page
	leaving  atomic.Bool
	pause    time.Duration

	api, debug                    *http.Server
	rpc                           *grpc.Server
	httpAddr, grpcAddr, debugAddr string
	failed                        chan error // of a server that ended by itself
}

// open starts all servers. The caller closes the shop.
func open(ctx context.Context, o settings) (*shop, error) {
	db, err := openStore(ctx, o.dsn)
	if err != nil {
		return nil, err
	}
	s := &shop{
		store: db,
		tenants: spillway.Must(limiter.NewKeyed(
			limiter.Bucket{Name: "tenant", Rate: limiter.Per(perTenant, time.Second), Burst: atOnce}, nil)),
		shed:   spillway.Must(shedder.New(&shedder.Options{Name: "shop", SLO: slo})),
		pause:  o.pause,
		failed: make(chan error, 3),
	}
	// A request that is hopeless costs least. The limit is cheap to give back when the shedder refuses.
	s.gate = spillway.New(spillway.Must(deadline.New(nil)), s.tenants, s.shed)
	s.payments = newPayments()
	sources := map[string]stats.Source{"shop": s.gate, "payments": s.payments.transport}
	s.page = console.New(sources, &console.Options{Title: "Shop"})
	if err := s.serve(ctx, o, sources); err != nil {
		s.pause = 0
		return nil, errors.Join(err, s.close()) //nolint:contextcheck // the end outlives ctx
	}
	return s, nil
}

// serve starts the servers.
func (s *shop) serve(ctx context.Context, o settings, sources map[string]stats.Source) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prom.New(sources))
	debug := http.NewServeMux() // outside the gate, on a port of its own
	debug.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	debug.Handle("/debug/spillway/", s.page)

	protect, err := httpgate.New(s.gate, s.httpOptions())
	if err != nil {
		return err
	}
	s.rpc = s.newRPC()
	s.api = newServer(protect.Handler(s.routes()))
	s.debug = newServer(debug)
	for _, server := range []struct {
		address string
		at      *string
		serve   func(net.Listener) error
	}{{o.http, &s.httpAddr, s.api.Serve}, {o.grpc, &s.grpcAddr, s.rpc.Serve}, {o.debug, &s.debugAddr, s.debug.Serve}} {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", server.address)
		if err != nil {
			return err
		}
		*server.at = listener.Addr().String()
		go func() {
			if err := server.serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
				s.failed <- err
			}
		}()
	}
	return nil
}

// newServer returns a server with all its timeouts: a gate does not decide how long a client may take to send and to read.
func newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}

// close stops to be ready, waits until balancers have noticed, finishes the admitted requests, and ends.
func (s *shop) close() error {
	s.leaving.Store(true)
	time.Sleep(s.pause)
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	var errs []error
	if s.rpc != nil {
		s.rpc.GracefulStop() // its calls have deadlines
	}
	for _, server := range []*http.Server{s.api, s.debug} {
		if server != nil {
			errs = append(errs, server.Shutdown(ctx))
		}
	}
	errs = append(errs, s.page.Close())
	s.payments.close()
	s.store.close()
	if n := s.gate.Stats().InFlight; n != 0 {
		errs = append(errs, fmt.Errorf("%d requests are in flight after the end", n))
	}
	return errors.Join(errs...)
}
