package main

import (
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// A server limits the requests per second of each tenant.
type server struct {
	addr string
	http *http.Server
}

func startServer(limit int) (*server, error) {
	protect, err := perTenant(limit)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") })
	s := &server{addr: l.Addr().String(), http: &http.Server{Handler: protect(hello), ReadHeaderTimeout: 5 * time.Second}}
	go s.http.Serve(l) //nolint:errcheck // it ends with close
	return s, nil
}

// perTenant returns middleware with a token bucket for each tenant. The header X-Tenant names the tenant. In
// production, a proxy that has authenticated the client sets it.
func perTenant(limit int) (func(http.Handler) http.Handler, error) {
	tenants, err := limiter.NewKeyed(limiter.Bucket{Name: "tenant", Rate: limiter.Per(limit, time.Second)}, nil)
	if err != nil {
		return nil, err
	}
	m, err := httpgate.New(spillway.New(tenants), &httpgate.Options{
		Request:   httpgate.KeyBy(httpgate.HeaderKey("X-Tenant")),
		RateLimit: &httpgate.RateLimit{Limits: []httpgate.QuotaFunc{tenants.Quota}},
	})
	if err != nil {
		return nil, err
	}
	return m.Handler, nil
}

func (s *server) close() { _ = s.http.Close() }
