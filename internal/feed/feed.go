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
	"fmt"
	"iter"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"

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
	return Row{field: field, metric: stats.Metric{Name: name, Unit: unit, Help: help, Kind: kind}, fixed: fixed}
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

// With yields metrics with labels of their own before those that they have.
func With(labels []stats.Label, metrics iter.Seq[stats.Metric]) iter.Seq[stats.Metric] {
	return func(yield func(stats.Metric) bool) {
		for m := range metrics {
			if m.Labels = with(labels, m.Labels...); !yield(m) {
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
		v := reflect.ValueOf(&s).Elem()
		var own []stats.Label
		if name := v.FieldByName("Name"); name.IsValid() {
			own = []stats.Label{{Name: "policy", Value: name.String()}}
		}
		for i := range rows {
			if !rows[i].yield(of, own, v.FieldByName(rows[i].field), yield) {
				return
			}
		}
	}
}

// yield yields the metrics of the field v. It reports whether to go on.
func (r *Row) yield(of any, own []stats.Label, v reflect.Value, yield func(stats.Metric) bool) bool {
	m := r.metric
	m.Of, m.Labels = of, with(own, r.fixed...)
	switch r.shape {
	case up:
		m.Value = truth(v.IsNil())
		return yield(m)
	case state, info:
		return r.texts(m, text(v), yield)
	case byReason:
		return reasons(m, v, yield)
	case histogram:
		d, _ := reflect.TypeAssert[stats.Distribution](v)
		m.Distribution = &d
		if d.Count > 0 {
			m.Value = d.Sum / float64(d.Count)
		}
		return yield(m)
	case byKey:
		counts, _ := reflect.TypeAssert[map[string]int64](v)
		for _, key := range slices.Sorted(maps.Keys(counts)) {
			each := m
			each.Value, each.Labels = float64(counts[key]), with(m.Labels, stats.Label{Name: r.label, Value: key})
			if !yield(each) {
				return false
			}
		}
		return true
	case by:
		for i := range v.Len() {
			each := m
			each.Value, each.Labels = float64(v.Index(i).Int()), with(m.Labels, stats.Label{Name: r.label, Value: r.values[i]})
			if !yield(each) {
				return false
			}
		}
		return true
	}
	var known bool
	m.Value, known = figure(v)
	return !known || yield(m)
}

// text returns a field that is a text or an enumeration as text.
func text(v reflect.Value) string {
	if v.Kind() == reflect.String {
		return v.String()
	}
	return fmt.Sprint(v)
}

// texts yields the metrics of a text.
func (r *Row) texts(m stats.Metric, text string, yield func(stats.Metric) bool) bool {
	values := r.values
	if r.shape == info {
		if text == "" {
			return true
		}
		values = []string{text}
	}
	own := m.Labels
	for _, value := range values {
		m.Value, m.Labels = truth(value == text), with(own, stats.Label{Name: r.label, Value: value})
		if !yield(m) {
			return false
		}
	}
	return true
}

// reasons yields a counter for each policy and reason. Two policies of one name are counted together.
func reasons(m stats.Metric, refusals reflect.Value, yield func(stats.Metric) bool) bool {
	for i := range refusals.Len() {
		policy, reason, count := refusal(refusals.Index(i))
		first := true
		for j := range refusals.Len() {
			p, why, n := refusal(refusals.Index(j))
			if j != i && p == policy && why == reason {
				first = first && i < j
				count += n
			}
		}
		if !first {
			continue
		}
		each := m
		each.Value, each.Labels = float64(count), []stats.Label{{Name: "policy", Value: policy}, {Name: "reason", Value: reason}}
		if !yield(each) {
			return false
		}
	}
	return true
}

func refusal(v reflect.Value) (policy, reason string, count int64) {
	return v.FieldByName("Policy").String(), v.FieldByName("Reason").String(), v.FieldByName("Count").Int()
}

// figure returns the value of a number, a bool or a time, and whether it is known.
func figure(v reflect.Value) (f float64, known bool) {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.Seconds(), x >= 0
	case time.Time:
		return float64(x.UnixNano()) / 1e9, !x.IsZero()
	}
	switch {
	case v.CanInt():
		return float64(v.Int()), true
	case v.CanFloat():
		return v.Float(), !math.IsInf(v.Float(), 0) && !math.IsNaN(v.Float())
	}
	return truth(v.Bool()), true
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// with returns own labels and more. The result shares no memory that grows with own.
func with(own []stats.Label, more ...stats.Label) []stats.Label {
	if len(more) == 0 {
		return own
	}
	return append(slices.Clip(own), more...)
}
