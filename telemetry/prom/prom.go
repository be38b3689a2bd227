// Package prom exports the metrics of Spillway to Prometheus.
//
//	sources := map[string]stats.Source{"api": gate} // a gate, with the policies that it asks
//	prometheus.MustRegister(prom.New(sources))
//	http.Handle("/metrics", promhttp.Handler())
//
// Each metric of the feed keeps its name, with underscores for dots, the unit as a suffix, and _total for counters, as
// OpenTelemetry translates names: "spillway.shedder.queue_delay" becomes "spillway_shedder_queue_delay_seconds". It has
// the label name, which is the name of its source in the map, and mostly the label policy, which is the name of the
// policy. No label comes from clients: metrics with the label key are left out.
//
// A histogram has classic buckets, at powers of two of a second, and is a native histogram as well for servers that
// scrape them.
package prom

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-go/spillway/stats"
)

// New returns a Collector of the metrics of all sources, which have the label name with their name in the map. An object
// that several sources share appears once; see [stats.Each]. The map is copied. The Collector describes nothing in advance,
// since series come and go. So register it once per program: a second one with the same names makes scrapes fail. A scrape
// takes one snapshot of each object, and requests do not wait for it.
func New(sources map[string]stats.Source) prometheus.Collector {
	return &collector{sources: maps.Clone(sources), series: map[string]*series{}}
}

type collector struct {
	sources map[string]stats.Source

	mu     sync.Mutex
	round  uint64
	series map[string]*series // by source, name and labels; those of the last rounds
	order  []*series          // of the samples of the last round
	key    []byte             // memory for a key of series
}

// A series holds the common part of all its samples.
type series struct {
	source string
	name   string
	labels []stats.Label

	desc  *prometheus.Desc
	pairs []*dto.LabelPair
	kind  stats.Kind
	round uint64 // of the last sample
}

// A sample is one value of a series.
type sample struct {
	*series

	value        float64
	distribution *stats.Distribution
}

// Describe sends nothing: the Collector is unchecked.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends a sample of each series.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round++
	free := make([]sample, len(c.order)) // mostly there are as many as in the last round
	sent := 0
	for source, m := range stats.Each(c.sources) {
		if m.Label("key") != "" {
			continue
		}
		s := c.find(sent, source, &m)
		if s.round == c.round { // a second sample of a series would fail the whole scrape
			continue
		}
		s.round = c.round
		if sent == len(c.order) {
			c.order = append(c.order, s)
		}
		c.order[sent] = s
		if len(free) == 0 {
			free = make([]sample, 64)
		}
		free[0].series, free[0].value, free[0].distribution = s, m.Value, m.Distribution
		out <- &free[0]
		free = free[1:]
		sent++
	}
	clear(c.order[sent:])
	c.order = c.order[:sent]
	if len(c.series) > 2*sent {
		maps.DeleteFunc(c.series, func(_ string, s *series) bool { return s.round != c.round })
	}
}

// find returns the series of m, which is the sample number i of this round. Mostly the last round had it at the same place.
func (c *collector) find(i int, source string, m *stats.Metric) *series {
	if i < len(c.order) {
		if s := c.order[i]; s.source == source && s.name == m.Name && slices.Equal(s.labels, m.Labels) {
			return s
		}
	}
	c.key = append(append(append(c.key[:0], source...), 0), m.Name...)
	for _, l := range m.Labels {
		c.key = append(append(append(append(c.key, 0), l.Name...), 0), l.Value...)
	}
	s := c.series[string(c.key)]
	if s == nil {
		s = newSeries(source, m)
		c.series[string(c.key)] = s
	}
	return s
}

func newSeries(source string, m *stats.Metric) *series {
	labels := prometheus.Labels{}
	for _, l := range m.Labels {
		labels[labelName(l.Name)] = strings.ToValidUTF8(l.Value, "�")
	}
	labels["name"] = strings.ToValidUTF8(source, "�")
	s := &series{
		source: source, name: m.Name, labels: slices.Clone(m.Labels), kind: m.Kind,
		desc: prometheus.NewDesc(metricName(m), m.Help, nil, labels),
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		s.pairs = append(s.pairs, &dto.LabelPair{Name: proto.String(name), Value: proto.String(labels[name])})
	}
	return s
}

// metricName returns the name of m in Prometheus.
func metricName(m *stats.Metric) string {
	name := underscored(m.Name)
	suffix := ""
	switch {
	case m.Unit == "s":
		suffix = "_seconds"
	case m.Unit == "By":
		suffix = "_bytes"
	case m.Unit == "1" && m.Kind == stats.KindGauge:
		suffix = "_ratio"
	case strings.HasSuffix(m.Unit, "/s"):
		suffix = "_per_second"
	}
	name = strings.TrimSuffix(name, suffix) + suffix
	if m.Kind == stats.KindCounter {
		name = strings.TrimSuffix(name, "_total") + "_total"
	}
	return name
}

// labelName returns a label of a user's own source as a valid name that is not "name".
func labelName(name string) string {
	if name = underscored(name); name == "name" || name == "" {
		return "label_" + name
	}
	return name
}

func underscored(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return '_'
	}, name)
}

// Desc returns the description of the series.
func (s *sample) Desc() *prometheus.Desc { return s.desc }

// Write fills in out.
func (s *sample) Write(out *dto.Metric) error {
	out.Label = s.pairs
	switch {
	case s.kind == stats.KindCounter:
		out.Counter = &dto.Counter{Value: &s.value}
	case s.distribution != nil:
		out.Histogram = histogram(s.distribution)
	default:
		out.Gauge = &dto.Gauge{Value: &s.value}
	}
	return nil
}

// The bounds of the first and last classic bucket, as powers of two of a second: 2 ms and 16 s.
const (
	firstBound = -9
	lastBound  = 4
)

// histogram returns d with classic and native buckets.
func histogram(d *stats.Distribution) *dto.Histogram {
	h := &dto.Histogram{
		SampleCount: proto.Uint64(d.Count), SampleSum: proto.Float64(d.Sum),
		Schema: proto.Int32(int32(d.Scale)), ZeroThreshold: proto.Float64(prometheus.DefNativeHistogramZeroThreshold),
		ZeroCount: proto.Uint64(d.Zero),
		// A span marks a native histogram even if it has no buckets.
		PositiveSpan: []*dto.BucketSpan{{Offset: proto.Int32(int32(d.First)), Length: proto.Uint32(uint32(len(d.Counts)))}},
	}
	last := int64(0)
	for _, n := range d.Counts {
		h.PositiveDelta = append(h.PositiveDelta, int64(n)-last)
		last = int64(n)
	}
	below, next := d.Zero, 0
	for bound := firstBound; bound <= lastBound; bound++ {
		for ; next < len(d.Counts) && d.First+next <= bound<<d.Scale; next++ {
			below += d.Counts[next]
		}
		h.Bucket = append(h.Bucket, &dto.Bucket{CumulativeCount: proto.Uint64(below), UpperBound: proto.Float64(math.Exp2(float64(bound)))})
	}
	return h
}
