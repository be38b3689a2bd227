// Command telemetry is a small service that shows what it does in three ways: to Prometheus at /metrics, to OpenTelemetry,
// and to a browser at /debug/spillway/.
//
//	go run ./examples/telemetry
//	go run ./examples/telemetry -check -json figures.json
//
// With -check it loads itself for half a minute, lets a real Prometheus scrape it, and asks for the data of each panel of
// the board in telemetry/grafana.
package main

import (
	"errors"
	"flag"
	"log"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/console"
	"github.com/spillway-go/spillway/internal/usage"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
	"github.com/spillway-go/spillway/telemetry/otel"
	"github.com/spillway-go/spillway/telemetry/prom"
)

const about = `telemetry shows a small service that exports its figures to Prometheus at
/metrics, to OpenTelemetry, and to a browser at /debug/spillway/. With -check it
loads itself for half a minute, and a real Prometheus scrapes it.`

func main() {
	flags := usage.New("telemetry", about, os.Stdout)
	listen := flags.String("listen", "127.0.0.1:8080", "`ADDRESS` to serve at")
	probe := flags.Bool("check", false, "load the service for half a minute, and check what Prometheus sees")
	file := flags.String("json", "", "write the figures of -check to `FILE`")
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		os.Exit(2)
	}
	if *probe {
		os.Exit(check(*file))
	}
	gate := spillway.New(spillway.Must(shedder.New(&shedder.Options{Name: "api"})))
	mux, page := telemetry(map[string]stats.Source{"api": gate}, sdkmetric.NewManualReader()) // in production, a reader that sends
	defer page.Close()
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello\n")) })
	mux.Handle("/", httpgate.Handler(gate, nil)(hello))
	log.Printf("serving http://%[1]s/ http://%[1]s/metrics http://%[1]s/debug/spillway/", *listen)
	log.Print(http.ListenAndServe(*listen, mux)) //nolint:gosec // an example
}

// telemetry exports the sources in all ways.
func telemetry(sources map[string]stats.Source, reader sdkmetric.Reader) (*http.ServeMux, *console.Page) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prom.New(sources))
	spillway.Must(otel.Register(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("spillway"), sources))
	page := console.New(sources, nil)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/debug/spillway/", page)
	return mux, page
}
