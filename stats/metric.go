package stats

import (
	"iter"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/spillway-go/spillway/internal/enum"
)

// A Source describes its present state as metrics. The Gate, every policy and every adapter of Spillway is one, and
// package telemetry/prom and its neighbours export any number of them.
type Source interface {
	// Metrics yields the metrics of one snapshot, which is taken when the iteration begins. Metrics of one name have the
	// same Help, Unit and Kind, and differ in their Labels. Metrics may be called at any time and concurrently.
	Metrics() iter.Seq[Metric]
}

// A Metric is one figure of a [Source], with what an exporter needs to publish it.
type Metric struct {
	Name string // with dots, such as "spillway.gate.in_flight"
	Help string // a sentence
	Unit string // in UCUM, such as "s", "{request}", "{request}/s" or "1" for a ratio; "" for 0 (no) and 1 (yes)
	Kind Kind
	// Labels tell the figures of one Name apart: {policy checkout-db}, {reason limit reached}. Their values are few and do not
	// come from clients, except in the label key: only the live page shows such metrics, if it is asked to. They are shared
	// between metrics, so do not modify them.
	Labels []Label
	Value  float64 // finite; the mean for a KindHistogram
	// Distribution is the value of a KindHistogram, and nil for the other kinds.
	Distribution *Distribution
	// Of is the object that the figure describes: the Gate, or one of its policies. [Each] shows an object only once.
	Of any
}

// A Label is one dimension of a [Metric].
type Label struct{ Name, Value string }

// Label returns the value of a label, or "" if the Metric does not have it.
func (m *Metric) Label(name string) string {
	for _, l := range m.Labels {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}

// A Kind says how the values of a [Metric] at two moments relate.
type Kind uint8

// The kinds.
const (
	KindGauge     Kind = iota // it goes up and down
	KindCounter               // it only grows, from 0 when the process starts
	KindHistogram             // a Distribution, whose counts only grow
)

// String returns the name of k in lower case.
func (k Kind) String() string { return enum.String("stats: Kind", kindNames, k) }

// MarshalText returns k.String(), or an error if there is no such kind.
func (k Kind) MarshalText() ([]byte, error) { return enum.Marshal("stats: Kind", kindNames, k) }

var kindNames = []string{KindGauge: "gauge", KindCounter: "counter", KindHistogram: "histogram"}

// A Distribution is the value of a histogram: how many values fell into each of its exponential buckets. Its layout is
// that of a native histogram of Prometheus and of an exponential histogram of OpenTelemetry.
type Distribution struct {
	Count uint64
	Sum   float64
	// Scale is the binary logarithm of the number of buckets between a value and its double: with 2 there are 4.
	Scale int
	Zero  uint64 // values of 0
	// Counts[i] is the number of values v with base^(First+i-1) < v <= base^(First+i), where base is 2^(2^-Scale).
	First  int
	Counts []uint64
}

// Each yields the metrics of all sources with the name of the source that they come from, in the order of the names. An
// object that several sources share, such as a policy of two gates, appears once, under the first name. If two objects
// of one source are of the same type and name, the label "policy" of the second ends in "#2", so that no two metrics of
// one source are the same.
func Each(sources map[string]Source) iter.Seq2[string, Metric] {
	return func(yield func(string, Metric) bool) {
		seen := map[any]bool{}
		for _, name := range slices.Sorted(maps.Keys(sources)) {
			twins := map[twin]int{}
			var last any
			skip, number := false, 0
			for m := range sources[name].Metrics() {
				if m.Of != nil && m.Of != last {
					last, skip = m.Of, seen[m.Of]
					seen[last] = true
					if !skip {
						t := twin{reflect.TypeOf(last), m.Label("policy"), m.Label("shadow")}
						twins[t]++
						number = twins[t]
					}
				}
				switch {
				case skip:
					continue
				case number > 1:
					m.Labels = numbered(m.Labels, number)
				}
				if !yield(name, m) {
					return
				}
			}
		}
	}
}

// twin is what two objects of one source have in common if their metrics would be the same.
type twin struct {
	of             reflect.Type
	policy, shadow string
}

// numbered returns a copy of labels in which the policy has a number.
func numbered(labels []Label, n int) []Label {
	labels = slices.Clone(labels)
	for i := range labels {
		if labels[i].Name == "policy" {
			labels[i].Value += "#" + strconv.Itoa(n)
		}
	}
	return labels
}
