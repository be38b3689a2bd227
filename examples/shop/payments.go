package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// payments calls another service, which runs in this process and breaks on command.
type payments struct {
	server    *httptest.Server
	client    *http.Client
	transport *httpgate.Transport
	brk       *breaker.Breaker
	broken    atomic.Bool
	orders    atomic.Int64
	calls     atomic.Int64 // that reached the service
}

func newPayments() *payments {
	p := &payments{brk: spillway.Must(breaker.New(&breaker.Options{Name: "payments", SlowCall: time.Second}))}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		// Every tenth call fails by chance, and all fail while the service is broken.
		if n := p.calls.Add(1); p.broken.Load() || n%10 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	p.transport = spillway.Must(httpgate.NewTransport(spillway.New(p.brk), p.server.Client().Transport, &httpgate.TransportOptions{
		TimeoutHeader: "Connect-Timeout-Ms", // passes on the time that is left
		Retry:         &httpgate.Retry{Attempts: 3, Backoff: 10 * time.Millisecond},
	}))
	p.client = &http.Client{Transport: p.transport}
	return p
}

// pay pays for an order. The key says which one, so that it is safe to send the request again.
func (p *payments) pay(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.server.URL, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Idempotency-Key", fmt.Sprintf("order-%d", p.orders.Add(1)))
	res, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("payments answered %s", res.Status)
	}
	return nil
}

func (p *payments) close() {
	p.client.CloseIdleConnections()
	p.server.Close()
}
