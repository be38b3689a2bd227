package main

import (
	"io"
	"net/http"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/spillway-go/spillway/gateway/envoyrls"
	"github.com/spillway-go/spillway/stats"
	"github.com/spillway-go/spillway/telemetry/prom"
)

// adminOf serves metrics, health, and requests in JSON.
func adminOf(service *envoyrls.Service) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), prom.New(map[string]stats.Source{"envoyrls": service}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("POST /json", func(w http.ResponseWriter, r *http.Request) { answerJSON(service, w, r) })
	return http.NewCrossOriginProtection().Handler(mux) // a web page in a browser of this machine may not take tokens
}

// answerJSON answers a RateLimitRequest with its RateLimitResponse: with 200, or with 429 if it is over the limit.
func answerJSON(service *envoyrls.Service, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	in := new(ratelimitv3.RateLimitRequest)
	if err == nil {
		err = protojson.Unmarshal(body, in)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, err := service.ShouldRateLimit(r.Context(), in)
	switch {
	case status.Code(err) == codes.InvalidArgument:
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if out.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	text, _ := protojson.Marshal(out) // a message of ours can be written
	_, _ = w.Write(append(text, '\n'))
}
