package stats

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Log writes a line when one of the policies of its sources runs into trouble, and one when that is over: a shedder that
// is overloaded, a breaker that opens, an adaptive limit or a throttle that refuses, a sensor that cannot be read, Redis
// that does not answer a cluster limit. A rate limit or a queue that refuses only does its job, so that is not logged. The
// attributes are
//
//	name      the key of the source
//	policy    the name of the policy
//	shadow    true for the candidate of a shadow, whose refusals are not carried out
//	sensor    in lines about a sensor, its name
//	reason    in the first line, why, if the policy says so
//	duration  in the last line, how long the trouble lasted, to a second or so
//	refused   in the last line, how many requests the policy refused meanwhile
//
// and in the first line rounded figures, such as limit and cpu. The level is Warn for the first line, and Info for the
// last one and for candidates of a shadow. Trouble is over after five seconds without any, so a state that flickers does
// not fill the log.
type Log struct {
	logger *slog.Logger
	ended  chan struct{}
	close  func()

	sources map[string]Source
	known   map[trouble]*episode
}

const (
	look      = time.Second
	calmAfter = 5 * look
)

// NewLog returns a Log of the sources, which a goroutine of its own reads once a second. If l is nil, it writes to
// [slog.Default]. The map is copied. The caller calls Close.
func NewLog(l *slog.Logger, sources map[string]Source) *Log {
	if l == nil {
		l = slog.Default()
	}
	stop := make(chan struct{})
	log := &Log{
		logger: l, sources: maps.Clone(sources), known: map[trouble]*episode{},
		ended: make(chan struct{}), close: sync.OnceFunc(func() { close(stop) }),
	}
	log.look(time.Now())
	go log.run(stop)
	return log
}

// Close ends the goroutine and waits for it. It may be called more than once, and returns nil.
func (l *Log) Close() error {
	l.close()
	<-l.ended
	return nil
}

func (l *Log) run(stop <-chan struct{}) {
	defer close(l.ended)
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			l.look(now)
		case <-stop:
			return
		}
	}
}

// A watch says which metrics of a kind of policy mean trouble. They are named without "spillway.", the kind and a dot.
type watch struct {
	begins, ends string
	state, calm  string   // the metric whose label is the state, and its value while there is no trouble
	grows        string   // the counter that grows while there is trouble
	refuses      string   // the counter of refused requests; "" if there is none
	why          string   // the metric whose label is the reason
	figures      []string // for the first line
	looks        int      // in a row that must find trouble
}

const (
	refusals   = "refusals"
	unanswered = "unanswered"
	sensorUp   = "sensor_up"
	silent     = "Redis does not answer"
	answers    = "Redis answers again"
)

// The watches by kind.
var watches = map[string]watch{
	"shedder": {
		begins: "overloaded", ends: "calm again", state: "overload_reason", calm: "calm", grows: refusals, refuses: refusals, why: "overload_reason",
		figures: []string{"limit", "in_flight", "cpu", "queue_delay"},
	},
	"breaker": {
		begins: "open", ends: "closed again", state: "state", calm: "closed", grows: refusals, refuses: refusals, why: "state_reason",
		figures: []string{"failure", "slow"},
	},
	"adaptive": {
		begins: "refuses", ends: "admits all again", grows: refusals, refuses: refusals, figures: []string{"limit", "in_flight", "baseline"},
	},
	"throttle": {begins: "refuses", ends: "admits all again", grows: refusals, refuses: refusals, figures: []string{"refusal"}},
	"exact":    {begins: silent, ends: answers, state: "breaker_state", calm: "closed", grows: unanswered, refuses: refusals},
	"lease":    {begins: silent, ends: answers, grows: "failures"},
	"lock":     {begins: silent, ends: answers, grows: unanswered, refuses: refusals},
}

// sensorDown watches a sensor. The first reading of a sensor may be missing, so one look is not enough.
var sensorDown = watch{begins: "a sensor cannot be read", ends: "the sensor can be read again", looks: 2}

// A trouble is something that may go wrong: with a policy, or with one of its sensors.
type trouble struct {
	of     any
	sensor string // "" for the policy itself
}

// A finding is what one look finds out about a trouble.
type finding struct {
	watch  *watch
	kind   string
	labels []any // of its lines
	shadow bool

	bad     bool
	reason  string
	figures []any
	grown   float64 // the counter that grows while there is trouble
	refused float64 // counted
	ticked  float64 // Unix time of the last tick of a shedder; 0 if there was none
}

// An episode is what a Log remembers of a trouble.
type episode struct {
	since, until time.Time
	logged       bool    // the first line is written, and the last one is not
	looks        int     // in a row that found it bad
	last         finding // of the last look
	before       float64 // requests refused before the trouble
}

// look reads the sources, and writes what has changed since the last look.
func (l *Log) look(now time.Time) {
	found := map[trouble]*finding{}
	var order []trouble
	add := func(t trouble, f *finding) *finding {
		order = append(order, t)
		found[t] = f
		return f
	}
	for name, m := range Each(l.sources) {
		kind, figure, _ := strings.Cut(strings.TrimPrefix(m.Name, "spillway."), ".")
		w, is := watches[kind]
		if !is || m.Of == nil {
			continue
		}
		own := trouble{of: m.Of}
		f := found[own]
		if f == nil {
			f = add(own, newFinding(kind, name, &w, &m))
		}
		f.read(figure, &m)
		// A shedder that has no requests does not look at its sensors.
		if e := l.known[own]; figure == sensorUp && e != nil && f.ticked > e.last.ticked {
			down := newFinding(kind, name, &sensorDown, &m)
			down.bad = m.Value == 0
			down.labels = append(down.labels, slog.String("sensor", m.Label("sensor")))
			add(trouble{m.Of, m.Label("sensor")}, down)
		}
	}
	for _, t := range order {
		e := l.known[t]
		if e == nil {
			e = &episode{last: *found[t]}
			l.known[t] = e
		}
		l.judge(e, found[t], now)
		e.last = *found[t]
	}
	maps.DeleteFunc(l.known, func(t trouble, _ *episode) bool { return found[trouble{of: t.of}] == nil })
}

func newFinding(kind, name string, w *watch, m *Metric) *finding {
	shadow := m.Label("shadow") != ""
	return &finding{watch: w, kind: kind, shadow: shadow, labels: []any{
		slog.String("name", name), slog.String("policy", m.Label("policy")), slog.Bool("shadow", shadow),
	}}
}

// read adds a metric to what is known.
func (f *finding) read(figure string, m *Metric) {
	w := f.watch
	if figure == w.grows {
		f.grown += m.Value
	}
	if figure == w.state && m.Value == 1 && m.Labels[len(m.Labels)-1].Value != w.calm {
		f.bad = true
	}
	switch {
	case figure == w.why && m.Value == 1, figure == "signal" && f.reason == figure: // a signal has a name
		f.reason = m.Labels[len(m.Labels)-1].Value
	case figure == w.refuses:
		f.refused += m.Value
	case figure == "tick_time":
		f.ticked = m.Value
	case slices.Contains(w.figures, figure):
		f.figures = append(f.figures, rounded(figure, m))
	}
}

// rounded returns a metric as an attribute that is easy to read.
func rounded(key string, m *Metric) slog.Attr {
	switch m.Unit {
	case "s":
		return slog.Duration(key, time.Duration(m.Value*float64(time.Second)).Round(100*time.Microsecond))
	case "1":
		return slog.Float64(key, math.Round(100*m.Value)/100)
	}
	return slog.Float64(key, math.Round(m.Value))
}

// judge writes the line that is due.
func (l *Log) judge(e *episode, f *finding, now time.Time) {
	if !f.bad && f.grown <= e.last.grown {
		e.looks = 0
		if e.logged && now.Sub(e.until) >= calmAfter {
			e.logged = false
			attributes := []any{slog.Duration("duration", (e.until.Sub(e.since) + look).Round(time.Second))}
			if f.watch.refuses != "" {
				attributes = append(attributes, slog.Int64("refused", int64(f.refused-e.before)))
			}
			l.write(slog.LevelInfo, f, f.watch.ends, attributes)
		}
		return
	}
	e.until = now
	if e.looks++; e.logged || e.looks < f.watch.looks {
		return
	}
	e.logged, e.since, e.before = true, now, e.last.refused
	level := slog.LevelWarn
	if f.shadow {
		level = slog.LevelInfo
	}
	if f.bad && f.reason != "" {
		f.figures = append([]any{slog.String("reason", f.reason)}, f.figures...)
	}
	l.write(level, f, f.watch.begins, f.figures)
}

func (l *Log) write(level slog.Level, f *finding, what string, attributes []any) {
	l.logger.Log(context.Background(), level, f.kind+": "+what, slices.Concat(f.labels, attributes)...)
}
