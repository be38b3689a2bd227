package console

import (
	"math"
	"slices"
	"time"

	"github.com/spillway-go/spillway/stats"
)

const (
	every     = time.Second // between two samples
	keep      = 600         // samples: ten minutes
	maxSeries = 2000        // of 2.4 KB each
	unixTimes = 1e9         // gauges in seconds above this are moments, not durations, and are not drawn
)

// A reading is one metric with the name of its source.
type reading struct {
	source string
	metric stats.Metric
}

// history keeps the last ten minutes of all metrics in bounded memory. Time is an argument of its methods. It is not safe for
// concurrent use.
type history struct {
	boot    string // tells this process from the one before it
	start   time.Time
	seq     int64 // number of the last sample, from 1
	times   [keep]int64
	series  map[string]*series
	order   []*series // by first appearance
	lastID  int
	left    int // series beyond maxSeries in the last sample
	last    time.Time
	journal journal
	sources map[string]*episode

	groups map[string][]*series // by source, in order, without those of shadows
	sorted []string             // the sources that have a series
	key    []byte               // of the series that is looked up
}

// series is one figure over time. A counter is kept as its growth per second, a histogram as the mean of the new values.
type series struct {
	id     int
	key    string
	source string
	metric stats.Metric // without value, distribution and object
	born   int64        // number of the first sample
	seen   int64        // number of the last sample with a value
	count  float64      // a counter's last value, or a histogram's count
	sum    float64      // of a histogram
	values [keep]float32
}

func newHistory(boot string, start time.Time) *history {
	return &history{boot: boot, start: start, series: map[string]*series{}, sources: map[string]*episode{}, groups: map[string][]*series{}}
}

// add keeps a sample taken at now. Samples must be in the order of time.
func (h *history) add(now time.Time, readings []reading) {
	h.seq++
	at := h.seq % keep
	dt := now.Sub(h.last).Seconds()
	if h.seq == 1 || dt <= 0 {
		dt = every.Seconds()
	}
	h.last, h.left = now, 0
	h.times[at] = h.start.UnixMilli() + now.Sub(h.start).Milliseconds() // the wall clock may be set; this one only advances
	for _, s := range h.order {
		s.values[at] = nan
	}
	for i := range readings {
		r := &readings[i]
		if s := h.find(r); s != nil {
			s.values[at] = s.take(&r.metric, dt, s.born == h.seq && h.seq == 1)
			s.seen = h.seq
		}
	}
	h.forget()
	h.group()
	h.changes()
}

// group collects the series of each source. Those of candidates in a shadow decide nothing, so the sentence ignores them.
func (h *history) group() {
	for name, group := range h.groups {
		clear(group)
		h.groups[name] = group[:0]
	}
	for _, s := range h.order {
		group := h.groups[s.source]
		if s.label("shadow") == "" {
			group = append(group, s)
		}
		h.groups[s.source] = group
	}
	h.sorted = h.sorted[:0]
	for name := range h.groups {
		if !slices.ContainsFunc(h.order, func(s *series) bool { return s.source == name }) {
			delete(h.groups, name)
			continue
		}
		h.sorted = append(h.sorted, name)
	}
	slices.Sort(h.sorted)
}

var nan = float32(math.NaN()) //nolint:gochecknoglobals // a constant

// find returns the series of a reading, a new one if needed, or nil if the reading is not to be kept.
func (h *history) find(r *reading) *series {
	m := &r.metric
	if m.Kind == stats.KindGauge && m.Unit == "s" && m.Value > unixTimes {
		return nil
	}
	h.key = appendKey(h.key[:0], r.source, m)
	if s := h.series[string(h.key)]; s != nil {
		return s
	}
	if len(h.order) >= maxSeries {
		h.left++
		return nil
	}
	h.lastID++
	s := &series{id: h.lastID, key: string(h.key), source: r.source, metric: *m, born: h.seq}
	s.metric.Of, s.metric.Distribution, s.metric.Value = nil, nil, 0
	for i := range s.values {
		s.values[i] = nan
	}
	h.series[s.key] = s
	h.order = append(h.order, s)
	return s
}

// appendKey appends the parts that distinguish a series from all others.
func appendKey(b []byte, source string, m *stats.Metric) []byte {
	b = append(append(append(b, source...), 0), m.Name...)
	for _, l := range m.Labels {
		b = append(append(append(append(b, 0), l.Name...), 1), l.Value...)
	}
	return b
}

// take returns the value to keep. The growth of a counter is unknown in the first sample; a counter that appears later began at 0.
func (s *series) take(m *stats.Metric, dt float64, first bool) float32 {
	count, sum := m.Value, 0.0
	switch {
	case m.Kind == stats.KindGauge:
		return float32(m.Value)
	case m.Distribution != nil:
		count, sum = float64(m.Distribution.Count), m.Distribution.Sum
	}
	grown, more := count-s.count, sum-s.sum
	if grown < 0 { // the counter began again
		grown, more = count, sum
	}
	s.count, s.sum = count, sum
	switch {
	case first:
		return nan
	case m.Kind == stats.KindCounter:
		return float32(grown / dt)
	case grown == 0:
		return nan
	}
	return float32(more / grown)
}

// forget removes series that have had no value within the history.
func (h *history) forget() {
	kept := h.order[:0]
	for _, s := range h.order {
		if s.seen+keep > h.seq {
			kept = append(kept, s)
			continue
		}
		delete(h.series, s.key)
	}
	clear(h.order[len(kept):])
	h.order = kept
}

// oldest returns the number of the oldest sample kept.
func (h *history) oldest() int64 { return max(1, h.seq-keep+1) }

// time returns when a sample was taken, in Unix milliseconds.
func (h *history) time(seq int64) int64 { return h.times[seq%keep] }

// at returns the value of s in a sample that is kept.
func (s *series) at(seq int64) float64 { return float64(s.values[seq%keep]) }

// mean returns the mean of the known values of the last n samples, and whether there is one.
func (h *history) mean(s *series, n int64) (float64, bool) {
	sum, known := 0.0, 0
	for seq := max(h.oldest(), h.seq-n+1); seq <= h.seq; seq++ {
		if v := s.at(seq); !math.IsNaN(v) {
			sum += v
			known++
		}
	}
	return sum / float64(known), known > 0
}

// now returns the value of s in the last sample, and whether there is one.
func (h *history) now(s *series) (float64, bool) {
	v := s.at(h.seq)
	return v, !math.IsNaN(v)
}
