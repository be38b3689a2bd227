// Package feed turns the fields of a Stats struct into metrics. A package with a Stats struct has a table of rows, one or more
// for each field:
//
//	var statsRows = []feed.Row{
//		feed.Gauge("InFlight", "spillway.breaker.in_flight", "{request}", "Calls that have not ended."),
//		...
//	}
//
//	func (b *Breaker) Metrics() iter.Seq[stats.Metric] { return feed.Of(b, statsRows, b.Stats) }
//
// A test of the root compares every table with its struct.
package feed

import (
	"iter"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/spillway-go/spillway/stats"
)

// A Row says how one field of a Stats struct becomes one or more metrics.
type Row struct {
	field  string
	metric stats.Metric
	fixed  []stats.Label
	shape  shape
	label  string   // of the values
	values []string // of label
	place  *atomic.Pointer[place]
}

type shape uint8

const (
	number    shape = iota // of a field that is a number, a bool or a time
	up                     // 1 if the field, an error, is nil
	state                  // for each value of a field 1 if it has it
	info                   // 1, with the field as label
	byReason               // for each element of a field, which is a refusal, its count
	by                     // for each element of a field, which is an array, its value
	byKey                  // for each element of a field, which is a map of counts, its value
	histogram              // of a field that is a Distribution
)

func row(field, name, unit, help string, kind stats.Kind, fixed []stats.Label) Row {
	return Row{
		field: field, metric: stats.Metric{Name: name, Unit: unit, Help: help, Kind: kind}, fixed: fixed, place: new(atomic.Pointer[place]),
	}
}

// Count is for a field that only grows.
func Count(field, name, unit, help string, fixed ...stats.Label) Row {
	return row(field, name, unit, help, stats.KindCounter, fixed)
}

// Gauge is for a number, a duration, a bool or a time. Durations become seconds and times Unix seconds. Infinite numbers,
// negative durations, and zero times are left out.
func Gauge(field, name, unit, help string, fixed ...stats.Label) Row {
	return row(field, name, unit, help, stats.KindGauge, fixed)
}

// Up is for an error: 1 if it is nil, and 0 otherwise.
func Up(field, name, help string, fixed ...stats.Label) Row {
	r := row(field, name, "", help, stats.KindGauge, fixed)
	r.shape = up
	return r
}

// State is for an enumeration: for each of the values a metric that is 1 if the field has the value, and 0 otherwise.
func State(field, name, help, label string, values ...string) Row {
	r := row(field, name, "", help, stats.KindGauge, nil)
	r.shape, r.label, r.values = state, label, values
	return r
}

// Info is for a text or an enumeration: a metric of 1 with the text as a label, and none while the text is empty.
func Info(field, name, help, label string) Row {
	r := row(field, name, "", help, stats.KindGauge, nil)
	r.shape, r.label = info, label
	return r
}

// ByReason is for a slice of refusals: a counter for each policy and reason.
func ByReason(field, name, help string) Row {
	r := row(field, name, "{request}", help, stats.KindCounter, nil)
	r.shape = byReason
	return r
}

// By is for an array of counts: a counter for each element, whose label has the value of the same index.
func By(field, name, unit, help, label string, values []string, fixed ...stats.Label) Row {
	r := row(field, name, unit, help, stats.KindCounter, fixed)
	r.shape, r.label, r.values = by, label, values
	return r
}

// ByKey is for a map of counts: a counter for each element, with its key as the label.
func ByKey(field, name, unit, help, label string) Row {
	r := row(field, name, unit, help, stats.KindCounter, nil)
	r.shape, r.label = byKey, label
	return r
}

// Histogram is for a Distribution of seconds.
func Histogram(field, name, help string, fixed ...stats.Label) Row {
	r := row(field, name, "s", help, stats.KindHistogram, fixed)
	r.shape = histogram
	return r
}

// With yields metrics with the given labels in front of their own.
func With(labels []stats.Label, metrics iter.Seq[stats.Metric]) iter.Seq[stats.Metric] {
	return func(yield func(stats.Metric) bool) {
		for m := range metrics {
			if m.Labels = slices.Concat(labels, m.Labels); !yield(m) {
				return
			}
		}
	}
}

// Join yields the metrics of each part.
func Join(parts ...iter.Seq[stats.Metric]) iter.Seq[stats.Metric] {
	return func(yield func(stats.Metric) bool) {
		for _, part := range parts {
			for m := range part {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// Of yields the metrics of the snapshot that take returns, by the rows. They describe of, and their label policy is the
// field Name of the snapshot, if there is one.
func Of[S any](of any, rows []Row, take func() S) iter.Seq[stats.Metric] {
	return func(yield func(stats.Metric) bool) {
		s := take()
		out := output{of: of, rows: len(rows), yield: yield}
		v := reflect.ValueOf(&s).Elem()
		if name := rows[0].in(v.Type()).name; name != nil {
			out.own = []stats.Label{{Name: "policy", Value: v.FieldByIndex(name).String()}}
		}
		for i := range rows {
			if !out.row(&rows[i], v) {
				return
			}
		}
	}
}

// An output is one snapshot that is being exported.
type output struct {
	of     any
	rows   int
	own    []stats.Label // of all its metrics
	labels []stats.Label // memory for those of the metrics, so that they need few allocations
	yield  func(stats.Metric) bool
}

// with returns labels and more. The result shares no memory that grows with labels.
func (o *output) with(labels []stats.Label, more ...stats.Label) []stats.Label {
	if len(more) == 0 {
		return labels
	}
	if o.labels == nil {
		o.labels = make([]stats.Label, 0, 2*o.rows)
	}
	start := len(o.labels)
	o.labels = append(append(o.labels, labels...), more...)
	return slices.Clip(o.labels[start:])
}

// row yields the metrics of a row. It reports whether to go on.
func (o *output) row(r *Row, snapshot reflect.Value) bool {
	at := r.in(snapshot.Type())
	v := snapshot.FieldByIndex(at.index)
	m := r.metric
	m.Of, m.Labels = o.of, o.with(o.own, r.fixed...)
	switch r.shape {
	case up:
		m.Value = truth(v.IsNil())
		return o.yield(m)
	case state, info:
		return o.texts(r, m, text(v))
	case byReason:
		return o.reasons(m, refusals(v, at.refusal))
	case histogram:
		d := *v.Addr().Interface().(*stats.Distribution) //nolint:forcetypeassert // place checks it
		m.Distribution = &d
		if d.Count > 0 {
			m.Value = d.Sum / float64(d.Count)
		}
		return o.yield(m)
	case byKey:
		counts := *v.Addr().Interface().(*map[string]int64) //nolint:forcetypeassert // place checks it
		for _, key := range slices.Sorted(maps.Keys(counts)) {
			if !o.labelled(m, float64(counts[key]), stats.Label{Name: r.label, Value: key}) {
				return false
			}
		}
		return true
	case by:
		for i := range v.Len() {
			if !o.labelled(m, float64(v.Index(i).Int()), stats.Label{Name: r.label, Value: r.values[i]}) {
				return false
			}
		}
		return true
	}
	var known bool
	m.Value, known = figure(v)
	return !known || o.yield(m)
}

// labelled yields m with another value and more labels.
func (o *output) labelled(m stats.Metric, value float64, more ...stats.Label) bool {
	m.Value, m.Labels = value, o.with(m.Labels, more...)
	return o.yield(m)
}

// texts yields the metrics of a text.
func (o *output) texts(r *Row, m stats.Metric, text string) bool {
	if r.shape == info {
		return text == "" || o.labelled(m, 1, stats.Label{Name: r.label, Value: text})
	}
	for _, value := range r.values {
		if !o.labelled(m, truth(value == text), stats.Label{Name: r.label, Value: value}) {
			return false
		}
	}
	return true
}

// reasons yields a counter for each policy and reason. Two policies of one name are counted together.
func (o *output) reasons(m stats.Metric, all []refusal) bool {
	m.Labels = nil // the refusal names the policy
	for i, r := range all {
		same := func(other refusal) bool { return other.policy == r.policy && other.reason == r.reason }
		if slices.ContainsFunc(all[:i], same) {
			continue
		}
		count := int64(0)
		for _, other := range all[i:] {
			if same(other) {
				count += other.count
			}
		}
		if !o.labelled(m, float64(count), stats.Label{Name: "policy", Value: r.policy}, stats.Label{Name: "reason", Value: r.reason}) {
			return false
		}
	}
	return true
}
