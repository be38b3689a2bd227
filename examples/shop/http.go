package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// The routes. An order is paid for, so it goes first; a report can wait.
const (
	orderRoute  = "POST /orders/{id}"
	itemRoute   = "GET /items/{id}"
	reportRoute = "GET /reports"
)

// priorityOf decides by route: a client that chooses its priority chooses the highest.
func priorityOf(route string) spillway.Priority {
	switch route {
	case orderRoute:
		return spillway.Critical
	case reportRoute:
		return spillway.Sheddable
	}
	return spillway.Normal
}

func (s *shop) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc(itemRoute, s.getItem)
	mux.HandleFunc(orderRoute, s.postOrder)
	mux.HandleFunc(reportRoute, s.getReport)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if s.leaving.Load() {
			http.Error(w, "leaving", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return mux
}

// httpOptions describe requests to the policies. Our login proxy sets X-Tenant; see docs/howto/tenant-limits.md.
func (s *shop) httpOptions() *httpgate.Options {
	route, tenant := httpgate.PatternKey(s.routes()), httpgate.HeaderKey("X-Tenant")
	return &httpgate.Options{
		Request: func(r *http.Request) spillway.Request {
			name := route(r)
			return spillway.Request{
				Key: tenant(r), Route: name, Priority: priorityOf(name),
				Timeout: min(cmp.Or(httpgate.ClientTimeout(r), patience), patience),
			}
		},
		RateLimit: &httpgate.RateLimit{Limits: []httpgate.QuotaFunc{s.tenants.Quota}},
	}
}

func (s *shop) getItem(w http.ResponseWriter, r *http.Request) {
	name, err := s.store.item(r.Context(), r.PathValue("id"))
	answer(w, r, name, err)
}

// postOrder looks the item up and pays for it.
func (s *shop) postOrder(w http.ResponseWriter, r *http.Request) {
	name, err := s.store.item(r.Context(), r.PathValue("id"))
	if err == nil {
		err = s.payments.pay(r.Context())
	}
	answer(w, r, "bought "+name, err)
}

// getReport makes four queries.
func (s *shop) getReport(w http.ResponseWriter, r *http.Request) {
	for _, id := range []string{"1", "2", "3", "4"} {
		if _, err := s.store.item(r.Context(), id); err != nil {
			answer(w, r, "", err)
			return
		}
	}
	answer(w, r, "4 items", nil)
}

// answer writes a result. A call that a gate of ours refused is answered as a refusal, and counts as no failure.
func answer(w http.ResponseWriter, r *http.Request, text string, err error) {
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, text) //nolint:gosec // plain text
	case errors.Is(err, spillway.ErrRejected):
		httpgate.WriteRefusal(w, r, err)
	case errors.Is(err, errNoItem):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, context.DeadlineExceeded):
		http.Error(w, "too late", http.StatusGatewayTimeout)
	default:
		http.Error(w, "a dependency failed", http.StatusBadGateway)
	}
}
