package console

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/stats"
)

// overload is a second of a gate with a shedder: how many of each priority it admits and refuses, and the reason.
type overload struct {
	reason                   string
	sheddable, normal, vital [2]float64 // admitted, refused
	wait                     float64
}

func (s *script) of(o overload) []reading {
	admitted := o.sheddable[0] + o.normal[0] + o.vital[0]
	refused := o.sheddable[1] + o.normal[1] + o.vital[1]
	out := []reading{
		s.grow("gate.requests", admitted, "result", "admitted"), s.grow("gate.requests", refused, "result", "refused"),
		s.grow("shedder.requests", admitted, "policy", "shedder", "result", "admitted"),
		gauge("shedder.limit", 24, "policy", "shedder"), gauge("shedder.in_flight", 24, "policy", "shedder"),
		gauge("shedder.queue_delay", o.wait, "policy", "shedder"), gauge("shedder.cpu_smoothed", 0.97, "policy", "shedder"),
		gauge("shedder.min_rt", 0.0124, "policy", "shedder"),
	}
	for priority, n := range map[string][2]float64{"sheddable": o.sheddable, "normal": o.normal, "critical": o.vital} {
		out = append(out, s.grow("shedder.priority_refusals", n[1], "policy", "shedder", "priority", priority),
			s.grow("shedder.priority_admissions", n[0], "policy", "shedder", "priority", priority))
	}
	if refused > 0 {
		out = append(out, s.grow("gate.refusals", refused, "policy", "shedder", "reason", "limit reached"))
	}
	for _, reason := range []string{"calm", "full", "cpu", "signal"} {
		is := 0.0
		if reason == o.reason {
			is = 1
		}
		out = append(out, metric(stats.KindGauge, "shedder.overload_reason", "", is, "policy", "shedder", "reason", reason))
	}
	return out
}

func TestTheSentence(t *testing.T) {
	calm := overload{reason: "calm", normal: [2]float64{412, 0}, vital: [2]float64{8, 0}}
	heavy := overload{reason: "cpu", sheddable: [2]float64{0, 13}, normal: [2]float64{69, 31}, vital: [2]float64{2.77, 0}, wait: 0.041}
	s := newScript()
	say := func() string { return s.h.verdict("api").Text }

	s.second(s.of(calm)...)
	require.Equal(t, "The first second is not over.", say())
	s.second(s.of(calm)...)
	require.Equal(t, "Refusing nothing: 420 requests/s, 24 of at most 24 in flight, CPU 97 %.", say())
	for range 12 {
		s.second(s.of(heavy)...)
	}
	require.Equal(t, "Refusing 38 % for 12 s because goroutines wait 41 ms for a CPU; limit 24, 24 in flight; "+
		"sheddable all, normal 31 %, critical none.", say())

	busy := heavy
	busy.wait = 0
	s.second(s.of(busy)...)
	require.Contains(t, say(), "for 13 s because the CPU is 97 % busy;")
	full := busy
	full.reason = "full"
	s.second(s.of(full)...)
	require.Contains(t, say(), "because it gets more requests than it can answer in its usual 12 ms;")
	signal := busy
	signal.reason = "signal"
	s.second(append(s.of(signal), metric(stats.KindGauge, "shedder.signal", "", 1, "policy", "shedder", "signal", "memory"))...)
	require.Contains(t, say(), "because the signal memory is high;")

	for range 8 {
		s.second(s.of(calm)...)
	}
	require.Contains(t, say(), "Refusing nothing: 420 requests/s")
	require.Contains(t, say(), "The last refusal was 8 s ago.")
	for range 4 {
		s.second(s.of(overload{reason: "calm"})...)
	}
	require.Equal(t, "No requests. The last refusal was 12 s ago.", say())
}

// One priority needs no list of priorities.
func TestTheSentenceWithoutPriorities(t *testing.T) {
	s := newScript()
	for range 5 {
		s.second(s.of(overload{reason: "cpu", normal: [2]float64{50, 50}, wait: 0.0052})...)
	}
	require.Equal(t, "Refusing 50 % for 4 s because goroutines wait 5.2 ms for a CPU; limit 24, 24 in flight.", s.h.verdict("api").Text)
}

func TestTheSentenceOfOtherPolicies(t *testing.T) {
	s := newScript()
	for range 3 {
		s.second(s.grow("gate.requests", 90, "result", "admitted"), s.grow("gate.requests", 10, "result", "refused"),
			s.grow("gate.refusals", 10, "policy", "tenants", "reason", "rate exceeded"), s.grow("limiter.requests", 1, "policy", "tenants", "result", "refused"))
	}
	require.Equal(t, "Refusing 10 % for 2 s because the limiter tenants says “rate exceeded”.", s.h.verdict("api").Text)

	s = newScript() // a breaker alone, without a gate
	for range 3 {
		s.second(s.grow("breaker.refused", 12, "policy", "db"), s.grow("breaker.refusals", 12, "policy", "db", "reason", "open"),
			metric(stats.KindGauge, "breaker.state", "", 1, "policy", "db", "state", "open"))
	}
	require.Equal(t, "Refusing 12 requests/s for 2 s because the breaker db is open.", s.h.verdict("api").Text)

	s = newScript()
	s.second(gauge("some.figure", 1))
	s.second(gauge("some.figure", 1))
	require.Equal(t, "It counts no requests. Its values are under All figures.", s.h.verdict("api").Text)
}

// The candidates of a shadow refuse nothing.
func TestTheSentenceIgnoresShadows(t *testing.T) {
	s := newScript()
	for range 3 {
		s.second(s.grow("gate.requests", 90, "result", "admitted"), s.grow("shedder.requests", 50, "shadow", "0", "policy", "shedder", "result", "refused"))
	}
	require.Equal(t, "Refusing nothing: 90 requests/s.", s.h.verdict("api").Text)
}

func TestHeadlineOfSeveralSources(t *testing.T) {
	calm := verdict{Source: "a", State: "calm", Text: "Refusing nothing."}
	bad := verdict{Source: "b", State: "refusing", Text: "Refusing 9 %."}
	for _, c := range []struct {
		all         []verdict
		state, text string
	}{
		{nil, "unknown", "There are no figures: no source yields a metric."},
		{[]verdict{calm}, "calm", "Refusing nothing."},
		{[]verdict{bad, calm}, "refusing", "b: Refusing 9 %."},
		{[]verdict{bad, bad, calm}, "refusing", "b: Refusing 9 %. One more refuses."},
		{[]verdict{bad, bad, bad}, "refusing", "b: Refusing 9 %. 2 more refuse."},
		{[]verdict{calm, calm}, "calm", "Refusing nothing."},
	} {
		state, text := headline(c.all)
		require.Equal(t, []string{c.state, c.text}, []string{state, text})
	}
}

func TestChanges(t *testing.T) {
	s := newScript()
	state := func(is string, limit, sensor float64) {
		out := s.of(overload{reason: "calm", normal: [2]float64{10, 0}})
		for _, one := range []string{"closed", "open", "half-open"} {
			v := 0.0
			if one == is {
				v = 1
			}
			out = append(out, metric(stats.KindGauge, "breaker.state", "", v, "policy", "db", "state", one))
		}
		s.second(append(out, gauge("exact.limit", limit, "policy", "tenants"), metric(stats.KindGauge, "shedder.sensor_up", "", sensor, "policy", "shedder", "sensor", "cpu"))...)
	}
	state("closed", 100, 0)
	state("closed", 100, 1) // the first reading is no news
	state("open", 100, 1)
	state("half-open", 100, 1) // too soon for another note
	state("open", 100, 0)
	state("closed", 200, 0)
	for range 2 {
		s.second(s.of(overload{reason: "cpu", normal: [2]float64{10, 5}, wait: 0.02})...)
	}
	for range 9 {
		s.second(s.of(overload{reason: "calm", normal: [2]float64{10, 0}})...)
	}
	var texts []string
	for _, c := range s.h.journal {
		require.Equal(t, "api", c.Source)
		texts = append(texts, time.UnixMilli(c.Time).UTC().Format("05 ")+c.Tone+" "+c.Text)
	}
	require.Equal(t, []string{
		"02 bad breaker db: closed → open",
		"04 bad shedder: the sensor cpu cannot be read",
		"05 good breaker db: open → closed",
		"05 plain exact tenants: limit 100 → 200",
		"06 bad begins to refuse because goroutines wait 20 ms for a CPU; limit 24, 24 in flight",
		"06 bad shedder: calm → cpu",
		"09 good shedder: cpu → calm",
		"12 good stops refusing, after 2 s and about 10 requests",
	}, texts)
}

// A set of rules has a sentence of its own, which is never the headline beside a gate, and its changes are notes.
func TestRulesOnThePage(t *testing.T) {
	s := newScript()
	second := func(version, up, pinned, age float64) {
		s.second(gauge("rules.version", version), gauge("rules.up", up), gauge("rules.pinned", pinned), gauge("rules.age", age))
	}
	say := func() string { v := s.h.verdict("api"); return v.State + " " + v.Text }
	for range 2 {
		second(0, 1, 0, 0)
	}
	require.Equal(t, "calm The rules are those of version 0.", say())
	second(3, 1, 0, 0)
	second(3, 0, 0, 40)
	require.Equal(t, "unknown The rules are those of version 3. The last document could not be read or was refused; the last good one was seen 40 s ago.", say())
	for range 4 {
		second(4, 1, 1, 0)
	}
	require.Equal(t, "calm The rules are those of version 4, pinned.", say())
	var texts []string
	for _, c := range s.h.journal {
		texts = append(texts, c.Tone+" "+c.Text)
	}
	require.ElementsMatch(t, []string{
		"plain the rules are of version 3 now, before of 0", "bad the rules cannot be read or are refused, the last good ones stay",
		"plain the rules are pinned", "plain the rules are of version 4 now, before of 3", "good the rules can be read and are valid again",
	}, texts)

	state, text := headline([]verdict{{State: "calm", Text: "Refusing nothing: 7 requests/s."}, {State: "unknown", Text: "The rules", aside: true}})
	require.Equal(t, "calm Refusing nothing: 7 requests/s.", state+" "+text)
	_, text = headline([]verdict{{State: "calm", Text: "The rules", aside: true}})
	require.Equal(t, "The rules", text)
}

// Another policy that refuses most is worth a note.
func TestChangeOfTheCulprit(t *testing.T) {
	s := newScript()
	for i := range 12 {
		limited, broken := 5.0, 0.0
		if i >= 6 {
			limited, broken = 1, 9
		}
		s.second(s.grow("gate.requests", 50, "result", "admitted"), s.grow("gate.requests", limited+broken, "result", "refused"),
			s.grow("gate.refusals", limited, "policy", "tenants", "reason", "rate exceeded"), s.grow("gate.refusals", broken, "policy", "db", "reason", "open"))
	}
	var texts []string
	for _, c := range s.h.journal {
		texts = append(texts, c.Text)
	}
	require.Equal(t, []string{"begins to refuse because the policy tenants says “rate exceeded”", "refuses now because the policy db says “open”"}, texts)
}

func TestSnapshotHoldsWhatIsNew(t *testing.T) {
	s := newScript()
	for i := range 5 {
		s.second(gauge("cpu", float64(i)/4), gauge("same", 3))
	}
	read := func(since int64) (out struct {
		Boot   string
		Seq    int64
		Next   int64
		Times  []int64
		Series []struct {
			ID  int
			Is  *struct{ Source, Name, Kind string }
			V   []*float64
			All *float64
		}
	}) {
		text, err := json.Marshal(s.h.snapshot(since, s.now.Add(-every/4), nil))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &out), string(text))
		return out
	}
	all := read(0)
	require.Equal(t, []any{"boot", int64(5), int64(250), 5}, []any{all.Boot, all.Seq, all.Next, len(all.Times)})
	require.Len(t, all.Series[0].V, 5)
	require.InDelta(t, 0.75, *all.Series[0].V[3], 0)
	require.Equal(t, "spillway.cpu", all.Series[0].Is.Name)
	require.InDelta(t, 3, *all.Series[1].All, 0, "one value for all samples")

	more := read(4)
	require.Len(t, more.Times, 1)
	require.InDelta(t, 1, *more.Series[0].V[0], 0)
	require.Nil(t, more.Series[0].Is, "the reader knows it")
	require.Empty(t, read(5).Times)
	require.Len(t, read(99).Times, 5, "99 is a number of another process")
	require.Len(t, read(-1).Times, 5)
}

func TestFigures(t *testing.T) {
	require.Equal(t, "38 %|3.8 %|4 %|less than 0.1 %|0 %|100 %", strings.Join([]string{
		percent(0.38), percent(0.0384), percent(0.04), percent(0.0004), percent(0), percent(1),
	}, "|"))
	require.Equal(t, "0.4 ms|41 ms|1.5 s|9 s|119 s|3 min|2 h 5 min", strings.Join([]string{
		seconds(0.0004), seconds(0.041), seconds(1.5), span(9 * time.Second), span(119 * time.Second), span(200 * time.Second), span(125 * time.Minute),
	}, "|"))
}
