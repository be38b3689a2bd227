// Package otel exports the metrics of Spillway to OpenTelemetry, and marks the spans of refused requests.
//
//	sources := map[string]stats.Source{"api": gate} // a gate, with the policies that it asks
//	registration, err := otel.Register(provider.Meter("spillway"), sources)
//	...
//	defer registration.Unregister()
//
// Each metric of the feed keeps its name, unit and description. Its attributes are its labels with "spillway." in front,
// as in spillway.policy and spillway.reason, and spillway.name, which is the name of its source in the map. This is the
// shape of the stable aspnetcore.rate_limiting metrics. Durations of requests are left to otelhttp and otelgrpc, which
// count refused requests too.
//
// It requires the API alone, so it works with any SDK, and costs nothing without one.
package otel

import (
	"context"
	_ "embed" // the names
	"fmt"
	"maps"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

// catalog lists the metrics of Spillway: name, kind, unit and description, a line each. A test of the root compares it
// with the code.
//
//go:embed metrics.txt
var catalog string

// Register makes observable instruments for the metrics of all sources, and one callback that observes them. The map is
// copied. OpenTelemetry requires all instruments in advance. Those of Spillway are known; those of other sources are the
// metrics that they yield now. A histogram becomes two counters, of its count and its sum, because the API has no observable
// histogram. The error comes from the meter. The caller calls Unregister of the Registration to end it.
func Register(meter metric.Meter, sources map[string]stats.Source) (metric.Registration, error) {
	e := exporter{sources: maps.Clone(sources), instruments: map[string]metric.Float64Observable{}}
	for line := range strings.Lines(catalog) {
		field := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		kind := stats.KindGauge
		switch field[1] {
		case stats.KindCounter.String():
			kind = stats.KindCounter
		case stats.KindHistogram.String():
			kind = stats.KindHistogram
		}
		if err := e.add(meter, &stats.Metric{Name: field[0], Kind: kind, Unit: field[2], Help: field[3]}); err != nil {
			return nil, err
		}
	}
	for _, m := range stats.Each(sources) {
		if m.Label("key") != "" {
			continue
		}
		if err := e.add(meter, &m); err != nil {
			return nil, err
		}
	}
	all := make([]metric.Observable, 0, len(e.instruments))
	for _, i := range e.instruments {
		all = append(all, i)
	}
	registration, err := meter.RegisterCallback(e.observe, all...)
	if err != nil {
		return nil, fmt.Errorf("otel: %w", err)
	}
	return registration, nil
}

// An exporter observes sources.
type exporter struct {
	sources     map[string]stats.Source
	instruments map[string]metric.Float64Observable // by name; not changed after Register
}

// The two counters of a histogram.
const (
	countOf = ".count"
	sumOf   = ".sum"
)

// add makes the instruments of a metric, unless they exist.
func (e *exporter) add(meter metric.Meter, m *stats.Metric) error {
	if m.Kind == stats.KindHistogram {
		for suffix, unit := range map[string]string{countOf: "{request}", sumOf: m.Unit} {
			if err := e.add(meter, &stats.Metric{Name: m.Name + suffix, Kind: stats.KindCounter, Unit: unit, Help: m.Help}); err != nil {
				return err
			}
		}
		return nil
	}
	if e.instruments[m.Name] != nil {
		return nil
	}
	var (
		i   metric.Float64Observable
		err error
	)
	if m.Kind == stats.KindCounter {
		i, err = meter.Float64ObservableCounter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
	} else {
		i, err = meter.Float64ObservableGauge(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
	}
	if err != nil {
		return fmt.Errorf("otel: %w", err)
	}
	e.instruments[m.Name] = i
	return nil
}

func (e *exporter) observe(_ context.Context, o metric.Observer) error {
	for source, m := range stats.Each(e.sources) {
		if m.Label("key") != "" { // it names a client
			continue
		}
		attributes := make([]attribute.KeyValue, 0, 1+len(m.Labels))
		attributes = append(attributes, attribute.String("spillway.name", source))
		for _, l := range m.Labels {
			attributes = append(attributes, attribute.String("spillway."+l.Name, l.Value))
		}
		with := metric.WithAttributes(attributes...)
		switch i := e.instruments[m.Name]; {
		case m.Distribution != nil:
			o.ObserveFloat64(e.instruments[m.Name+countOf], float64(m.Distribution.Count), with)
			o.ObserveFloat64(e.instruments[m.Name+sumOf], m.Distribution.Sum, with)
		case i != nil:
			o.ObserveFloat64(i, m.Value, with)
		}
	}
	return nil
}

// Mark sets the attributes spillway.policy and spillway.reason of the active span of ctx if err is a refusal, and does
// nothing otherwise. Call it where a refusal becomes an answer:
//
//	o.Refuse = func(w http.ResponseWriter, r *http.Request, rej *spillway.Rejection) {
//		otel.Mark(r.Context(), rej)
//		httpgate.WriteRefusal(w, r, rej)
//	}
//
// and for gRPC in an interceptor outside the gate, with the error of the handler. The span is that of otelhttp or
// otelgrpc only if they come before the gate.
func Mark(ctx context.Context, err error) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	if rej := spillway.RejectionOf(err); rej != nil {
		span.SetAttributes(attribute.String("spillway.policy", rej.Policy), attribute.String("spillway.reason", rej.Reason))
	}
}
