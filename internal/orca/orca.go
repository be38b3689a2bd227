// Package orca renders load reports in the form of ORCA, which load balancers read: Envoy, gRPC's weighted_round_robin and
// cloud load balancers.
package orca

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/spillway-go/spillway/internal/periodic"
	"github.com/spillway-go/spillway/stats"
)

// A Mode says which responses carry a load report.
type Mode uint8

// The modes.
const (
	Off       Mode = iota // none
	OnRequest             // those to requests that ask for it with the header endpoint-load-metrics-format
	Always                // all
)

// The names of the header fields, in HTTP and, with "-bin", in gRPC.
const (
	Header = "Endpoint-Load-Metrics"
	Format = "Endpoint-Load-Metrics-Format"
)

const (
	interval = 100 * time.Millisecond // between two reports
	span     = 1.0                    // seconds over which the rates are averaged
)

// A Report is one report in all its forms. It is shared, and never modified.
type Report struct {
	Text, JSON []string // values of Header
	Binary     string   // an xds.data.orca.v3.OrcaLoadReport
}

// A Reporter renders the load of a source once per interval. Its methods may be called concurrently.
type Reporter struct{ last *periodic.Value[*Report] }

// New returns a Reporter of a gate and its policies, or nil if the mode is Off. The error says that there is no such mode.
func New(mode Mode, source func() iter.Seq[stats.Metric]) (*Reporter, error) {
	switch {
	case mode > Always:
		return nil, fmt.Errorf("LoadReport: must be one of the constants, got %d", mode)
	case mode == Off:
		return nil, nil //nolint:nilnil // nil reports nothing
	}
	var l load
	return &Reporter{periodic.New(interval, func(now time.Time) *Report { return l.next(source(), now) })}, nil
}

// Report returns the present report.
func (r *Reporter) Report(now time.Time) *Report { return r.last.At(now) }

// load is the state that the next report is compared with.
type load struct {
	at               time.Time
	requests, errors float64 // counts
	rps, eps, used   float64 // averages; used is the share of the limit that is in use
}

// next returns the report at now.
func (l *load) next(metrics iter.Seq[stats.Metric], now time.Time) *Report {
	var requests, errors, demand, cpu, limit, inFlight float64
	for m := range metrics {
		switch {
		case m.Label("shadow") != "":
		case m.Name == "spillway.gate.requests" && m.Label("result") != "cancelled":
			requests += m.Value
			if m.Label("result") == "refused" {
				errors += m.Value
			}
		case m.Name == "spillway.gate.outcomes" && (m.Label("outcome") == "failure" || m.Label("outcome") == "dropped"):
			errors += m.Value
		case m.Name == "spillway.demand":
			demand = max(demand, m.Value)
		case m.Name == "spillway.shedder.cpu":
			cpu = max(cpu, m.Value)
		case m.Name == "spillway.adaptive.limit":
			limit = m.Value
		case m.Name == "spillway.adaptive.in_flight":
			inFlight = m.Value
		}
	}
	var used float64
	if limit > 0 {
		// The request that carries the report is in flight. If it counted, a server with few requests would look busy, and a
		// balancer would send it even fewer.
		used = max(0, inFlight-1) / limit
	}
	if dt := now.Sub(l.at).Seconds(); l.at.IsZero() {
		l.used = used
	} else if dt > 0 {
		weight := -math.Expm1(-dt / span)
		l.rps += ((requests-l.requests)/dt - l.rps) * weight
		l.eps += ((errors-l.errors)/dt - l.eps) * weight
		l.used += (used - l.used) * weight
	}
	demand = max(demand, l.used)
	l.at, l.requests, l.errors = now, requests, errors
	return render(demand, cpu, l.rps, l.eps)
}

// render returns a report of four figures.
func render(demand, cpu, rps, eps float64) *Report {
	var binaryForm []byte
	for _, f := range []struct {
		number byte
		value  float64
	}{{1, cpu}, {6, rps}, {7, eps}, {9, demand}} {
		if f.value != 0 { // proto3 leaves zeros out
			binaryForm = binary.LittleEndian.AppendUint64(append(binaryForm, f.number<<3|1), math.Float64bits(f.value))
		}
	}
	const text, json = "TEXT application_utilization=%.4g, cpu_utilization=%.4g, rps_fractional=%.6g, eps=%.6g",
		`JSON {"application_utilization":%.4g,"cpu_utilization":%.4g,"rps_fractional":%.6g,"eps":%.6g}`
	return &Report{
		Text: []string{fmt.Sprintf(text, demand, cpu, rps, eps)}, JSON: []string{fmt.Sprintf(json, demand, cpu, rps, eps)},
		Binary: string(binaryForm),
	}
}
