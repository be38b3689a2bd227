// Command overload drives a real HTTP server far beyond its capacity, first bare and then behind Spillway, and shows
// its useful work.
//
//	go run ./examples/overload
//	go run ./examples/overload -loads 0.5,5 -seconds 10 -guards none,fixed:4,spillway -json figures.json
//	go run ./examples/overload -live 127.0.0.1:8081   # shows the live page of the guarded server, and /metrics
package main

import (
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/spillway-go/spillway/lab/overload"
	"github.com/spillway-go/spillway/stats"
	"github.com/spillway-go/spillway/telemetry/prom"
)

func main() {
	os.Exit(overload.Main(overload.Config{
		Guards: []overload.Guard{{Name: "spillway", Wrap: protected}},
		About: "overload shows what is left of the useful work of a real HTTP server far beyond its capacity, first bare and then " +
			"behind Spillway. Both run on this machine, in processes of their own, for about two minutes.",
		DefaultGuards: "none,spillway",
		Metrics:       metrics,
	}))
}

// metrics serves the sources to Prometheus.
func metrics(sources map[string]stats.Source) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prom.New(sources))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}
