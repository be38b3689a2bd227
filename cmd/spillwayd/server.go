package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
	"github.com/spillway-go/spillway/cmd/spillwayd/internal/listen"
	"github.com/spillway-go/spillway/cmd/spillwayd/internal/proxy"
	"github.com/spillway-go/spillway/cmd/spillwayd/internal/state"
	"github.com/spillway-go/spillway/rules"
	"github.com/spillway-go/spillway/rules/yaml"
)

// A server is the whole process: the proxy, its listeners and the pages for operators.
type server struct {
	conf     *config.Config
	logger   *slog.Logger
	proxy    *proxy.Proxy
	watch    *rules.Watch // nil without a file
	servers  []*http.Server
	serve    []func() error // for each of servers
	accepted []*listen.Listener
	admin    *admin // nil if it is off
	state    *state.Keeper
}

// try builds everything that a Config names, except the listeners.
func try(conf *config.Config) error {
	s := &server{conf: conf, logger: slog.New(slog.DiscardHandler)}
	p, err := proxy.New(conf, s.logger)
	if err != nil {
		return err
	}
	defer p.Close()
	for i := range conf.Listen {
		if t := conf.Listen[i].TLS; t != nil {
			if _, err := listen.NewCertificate(t.Cert, t.Key, s.logger); err != nil {
				return fmt.Errorf("listen[%d].tls: %w", i, err)
			}
		}
	}
	return nil
}

// serve runs until ctx ends and the last request is answered. File is the path of the file of conf, or "".
func serve(ctx context.Context, conf *config.Config, file string, logger *slog.Logger) error {
	s, err := newServer(conf, file, logger) //nolint:contextcheck // it has the life of the server, which outlives ctx
	if err != nil {
		return err
	}
	return s.run(ctx)
}

// newServer makes a server that listens, and does not answer yet.
func newServer(conf *config.Config, file string, logger *slog.Logger) (_ *server, err error) {
	s := &server{conf: conf, logger: logger}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.proxy, err = proxy.New(conf, logger); err != nil {
		return nil, err
	}
	if err = s.follow(file); err != nil {
		return nil, err
	}
	s.state = state.Keep(statePath(conf), s.proxy.Shedder(), logger)
	for i := range conf.Listen {
		if err = s.listen(context.Background(), &conf.Listen[i]); err != nil {
			return nil, fmt.Errorf("listen[%d]: %w", i, err)
		}
	}
	if conf.Admin.Address != "off" {
		if s.admin, err = newAdmin(s); err != nil {
			return nil, fmt.Errorf("admin.address: %w", err)
		}
		s.logger.Info("spillwayd: the live page, /metrics, /healthz and /readyz", slog.String("address", s.admin.listener.Addr().String()))
	}
	return s, nil
}

// statePath returns the file with what the shedder has learnt, "" for none.
func statePath(conf *config.Config) string {
	names := slices.Clone(conf.Backend.URLs)
	for i := range conf.Listen {
		names = append(names, conf.Listen[i].Address)
	}
	return state.Path(conf.State, names...)
}

// follow lets the numbers follow a file: conf.Rules, or the file of conf.
func (s *server) follow(file string) (err error) {
	path, decode := file, s.conf.Follow()
	if s.conf.Rules != "" {
		path, decode = s.conf.Rules, nil
		if ext := filepath.Ext(path); ext == ".yaml" || ext == ".yml" {
			decode = yaml.JSON
		}
	}
	if path == "" {
		return nil
	}
	s.watch, err = s.proxy.Rules().Follow(rules.File(path), &rules.Options{Name: path, Decode: decode, Logger: s.logger})
	return err
}

// listen adds a listener.
func (s *server) listen(ctx context.Context, o *config.Listen) error {
	inner, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Address)
	if err != nil {
		return err
	}
	useless := o.MaxUseless
	if s.conf.DryRun {
		useless = 0
	}
	l, err := listen.New(inner, listen.Options{
		MaxConnections: o.MaxConnections, MaxPerClient: o.MaxConnectionsPerClient, AcceptRate: o.AcceptRate, ProxyProtocol: o.ProxyProtocol,
		MaxUseless: useless, WriteTimeout: o.AnswerTimeout, Logger: s.logger,
	})
	if err != nil {
		inner.Close()
		return err
	}
	s.accepted = append(s.accepted, l)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(o.TLS != nil)
	protocols.SetUnencryptedHTTP2(o.TLS == nil)
	h := &http.Server{
		Handler: s.proxy.Handler(o.BodyTimeout, o.AnswerTimeout), ReadHeaderTimeout: o.HeaderTimeout, IdleTimeout: o.IdleTimeout,
		ConnContext: listen.Context,
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateHijacked { // an upgraded connection may stand still
				listen.Release(c)
			}
		},
		MaxHeaderBytes: int(o.MaxHeader), Protocols: &protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: o.MaxStreams},
		ErrorLog: slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug), // strangers cause these errors
	}
	serve := func() error { return h.Serve(l) }
	if o.TLS != nil {
		cert, err := listen.NewCertificate(o.TLS.Cert, o.TLS.Key, s.logger)
		if err != nil {
			return fmt.Errorf("tls: %w", err)
		}
		h.TLSConfig = &tls.Config{GetCertificate: cert.Get, MinVersion: tls.VersionTLS12}
		serve = func() error { return h.ServeTLS(l, "", "") }
	}
	s.servers = append(s.servers, h)
	s.serve = append(s.serve, serve)
	s.logger.Info("spillwayd: listening", slog.String("address", inner.Addr().String()), slog.Bool("tls", o.TLS != nil))
	return nil
}

// run answers requests until ctx ends, and then drains.
func (s *server) run(ctx context.Context) error {
	defer s.close() //nolint:contextcheck // ctx has ended
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for _, serve := range s.serve {
		running.Go(func() {
			if err := serve(); !errors.Is(err, http.ErrServerClosed) {
				cancel(err)
			}
		})
	}
	if s.admin != nil {
		s.admin.start(cancel)
	}
	<-ctx.Done()
	failure := context.Cause(ctx)
	if errors.Is(failure, context.Canceled) {
		failure = nil
	}
	err := s.drain() //nolint:contextcheck // ctx has ended
	running.Wait()
	return cmp.Or(failure, err)
}

// linger is how long connections stay open after the last one was accepted. Shutdown cuts off a connection on which a request is
// just arriving. Until then, a busy connection gets an answer that ends it, so only those are cut that were idle for so long.
const linger = time.Second

// drain ends the service: no new connections, and an answer to every request whose header was read.
func (s *server) drain() error {
	d := s.conf.Drain
	s.logger.Info("spillwayd: draining", slog.Duration("delay", d.Delay), slog.Duration("timeout", d.Timeout))
	s.proxy.Drain()
	time.Sleep(d.Delay) // balancers need time to notice that readyz fails
	ctx, cancel := context.WithTimeout(context.Background(), d.Timeout)
	defer cancel()
	for _, l := range s.accepted {
		l.Drain()
	}
	s.waitConnections(min(linger, d.Timeout/4))
	var (
		ends sync.WaitGroup
		errs = make([]error, len(s.servers))
	)
	for i, h := range s.servers {
		ends.Go(func() { errs[i] = h.Shutdown(ctx) })
	}
	ends.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("requests were still running after drain.timeout (%v): %w", d.Timeout, err)
	}
	return s.waitLongLived(ctx)
}

// waitConnections waits until no connection is open, for at most the given time.
func (s *server) waitConnections(most time.Duration) {
	end := time.Now().Add(most)
	for _, l := range s.accepted {
		for l.Counts().Open > 0 && time.Now().Before(end) {
			time.Sleep(min(5*time.Millisecond, most))
		}
	}
}

// waitLongLived waits for upgraded connections, which Shutdown does not know.
func (s *server) waitLongLived(ctx context.Context) error {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		n := s.proxy.LongLived()
		if n == 0 {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			s.logger.Info("spillwayd: upgraded connections are cut off", slog.Int64("connections", n))
			return nil
		}
	}
}

// close ends all goroutines and connections.
func (s *server) close() {
	for _, h := range s.servers {
		h.Close()
	}
	for _, l := range s.accepted {
		l.Close()
	}
	if s.admin != nil {
		s.admin.close()
	}
	if s.watch != nil {
		s.watch.Close()
	}
	if s.state != nil {
		s.state.Close()
	}
	if s.proxy != nil {
		s.proxy.Close()
	}
}
