package console

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/stats"
)

// snapshot is the answer when the page asks for the samples after a number. Fields that would be long in plain JSON are
// appended by hand.
type snapshot struct {
	Boot     string    `json:"boot"` // another one after a restart of the process
	Seq      int64     `json:"seq"`  // of the last sample
	Now      int64     `json:"now"`  // Unix milliseconds, by the clock of Times
	Next     int64     `json:"next"` // milliseconds until the next sample is due
	Headline string    `json:"headline"`
	State    string    `json:"state"`
	Verdicts []verdict `json:"verdicts"`
	Notes    []string  `json:"notes"`
	Changes  []change  `json:"changes"`
	Times    []int64   `json:"times"`
	Series   rawJSON   `json:"series"`
}

type rawJSON = json.RawMessage

// snapshot returns the samples after since, or all if since is not a sample of this history.
func (h *history) snapshot(since int64, now time.Time, problems map[string]string) snapshot {
	if since < 0 || since > h.seq {
		since = 0
	}
	from := max(h.oldest(), since+1)
	s := snapshot{
		Boot: h.boot, Seq: h.seq, Now: h.start.UnixMilli() + now.Sub(h.start).Milliseconds(),
		Next: max(0, (every - now.Sub(h.last)).Milliseconds()), Notes: h.notes(problems), Changes: []change{}, Times: []int64{},
	}
	s.Verdicts = h.verdicts()
	s.State, s.Headline = headline(s.Verdicts)
	for _, c := range h.journal {
		if c.seq > since {
			s.Changes = append(s.Changes, c)
		}
	}
	for seq := from; seq <= h.seq; seq++ {
		s.Times = append(s.Times, h.time(seq))
	}
	s.Series = append(s.Series, '[')
	for i, one := range h.order {
		if i > 0 {
			s.Series = append(s.Series, ',')
		}
		s.Series = one.append(s.Series, from, h.seq, one.born > since)
	}
	s.Series = append(s.Series, ']')
	return s
}

// append appends the values of the samples from..to as JSON, and the names of the series if it is new.
func (s *series) append(b []byte, from, to int64, isNew bool) []byte {
	b = strconv.AppendInt(append(b, `{"id":`...), int64(s.id), 10)
	if isNew {
		b = append(b, `,"is":`...)
		b = append(b, s.definition()...)
	}
	same := true
	for seq := from; seq <= to && same; seq++ {
		x, y := s.at(seq), s.at(from)
		same = x == y || math.IsNaN(x) && math.IsNaN(y)
	}
	if same && to > from { // one value for all
		return append(appendFloat(append(b, `,"all":`...), s.at(from)), '}')
	}
	b = append(b, `,"v":[`...)
	for seq := from; seq <= to; seq++ {
		if seq > from {
			b = append(b, ',')
		}
		b = appendFloat(b, s.at(seq))
	}
	return append(b, "]}"...)
}

func appendFloat(b []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, v, 'g', 6, 32)
}

func (s *series) definition() []byte {
	labels := map[string]string{}
	for _, l := range s.metric.Labels {
		labels[l.Name] = l.Value
	}
	text, err := json.Marshal(struct {
		Source string            `json:"source"`
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
		Unit   string            `json:"unit"`
		Kind   stats.Kind        `json:"kind"`
		Help   string            `json:"help"`
	}{s.source, s.metric.Name, labels, s.metric.Unit, s.metric.Kind, s.metric.Help})
	if err != nil { // an unknown Kind of a source that is not ours
		return []byte(`{}`)
	}
	return text
}

// verdicts returns one sentence for each source, the one that refuses most first, and those that are not about requests last.
func (h *history) verdicts() []verdict {
	out := []verdict{}
	for _, name := range h.sorted {
		out = append(out, h.verdict(name))
	}
	slices.SortStableFunc(out, func(a, b verdict) int {
		if a.aside != b.aside {
			return map[bool]int{true: 1, false: -1}[a.aside]
		}
		return cmp.Compare(b.refused, a.refused)
	})
	return out
}

// headline is the sentence of the source that refuses most, and how many others refuse.
func headline(all []verdict) (state, text string) {
	if len(all) == 0 {
		return "unknown", "There are no figures: no source yields a metric."
	}
	if i := slices.IndexFunc(all, func(v verdict) bool { return v.aside }); i > 0 {
		all = all[:i]
	}
	state, text = all[0].State, all[0].Text
	if len(all) == 1 {
		return state, text
	}
	others := 0
	for _, v := range all[1:] {
		if v.State == "refusing" {
			others++
		}
	}
	switch {
	case state != "refusing":
		return state, "Refusing nothing."
	case others == 1:
		return state, all[0].Source + ": " + text + " One more refuses."
	case others > 1:
		return state, all[0].Source + ": " + text + " " + strconv.Itoa(others) + " more refuse."
	}
	return state, all[0].Source + ": " + text
}

// notes returns what is wrong with what the page shows.
func (h *history) notes(problems map[string]string) []string {
	notes := []string{}
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		notes = append(notes, "Source "+name+" cannot be read: "+problems[name]+".")
	}
	if h.left > 0 {
		notes = append(notes, strconv.Itoa(h.left)+" figures beyond the first "+strconv.Itoa(maxSeries)+" are not shown.")
	}
	for _, s := range h.order {
		v, known := h.now(s)
		if _, figureName := s.kind(); figureName != "sensor_up" || !known || v == 1 || s.label("shadow") != "" {
			continue
		}
		if f := h.flow(h.groups[s.source], recent); f.admitted+f.refused > 0 { // without requests, a sensor may have no reading
			notes = append(notes, "The sensor "+s.label("sensor")+" of "+s.label("policy")+" ("+s.source+") cannot be read.")
		}
	}
	return notes
}
