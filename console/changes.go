package console

import (
	"fmt"
	"strings"
	"time"
)

const (
	maxChanges = 50
	calmAfter  = 5 * every // an episode of refusals ends after this time without one
	notAgain   = 3 * every // between two notes about one state, so that a flickering one does not fill the journal
)

// A change is something that a source did.
type change struct {
	seq    int64
	Time   int64  `json:"t"` // Unix milliseconds
	Source string `json:"source"`
	Text   string `json:"text"`
	Tone   string `json:"tone"` // "bad", "good" or "plain"
}

// journal keeps the last changes.
type journal []change

func (j *journal) add(c change) {
	*j = append(*j, c)
	if extra := len(*j) - maxChanges; extra > 0 {
		*j = append(journal{}, (*j)[extra:]...)
	}
}

// An episode is a time in which a source refuses.
type episode struct {
	refusing bool
	culprit  culprit              // the last one noted
	named    time.Time            // when
	since    time.Time            // of the first refusal
	until    time.Time            // of the last refusal
	refused  float64              // per second, summed over the samples
	states   map[string]string    // the last one noted
	noted    map[string]time.Time // when
}

// changes finds what has changed in the last sample.
func (h *history) changes() {
	for name := range h.sources {
		if _, is := h.groups[name]; !is {
			delete(h.sources, name)
		}
	}
	for _, name := range h.sorted {
		e := h.sources[name]
		if e == nil {
			e = &episode{states: map[string]string{}, noted: map[string]time.Time{}}
			h.sources[name] = e
		}
		source := h.groups[name]
		h.refusing(name, source, e)
		h.states(name, source, e)
	}
}

func (h *history) note(source, tone, format string, args ...any) {
	h.journal.add(change{seq: h.seq, Time: h.time(h.seq), Source: source, Tone: tone, Text: fmt.Sprintf(format, args...)})
}

// refusing notes the beginning and the end of refusals.
func (h *history) refusing(name string, source []*series, e *episode) {
	f := h.flow(source, 1)
	c, _ := h.culprit(source, 1)
	switch {
	case f.refused > 0 && !e.refusing:
		e.refusing, e.since, e.until, e.refused = true, h.last, h.last, f.refused
		e.culprit, e.named = c, h.last
		h.note(name, "bad", "begins to refuse%s", strings.TrimSuffix(h.because(source), "."))
	case f.refused > 0:
		e.until = h.last
		e.refused += f.refused
		if (c.policy != e.culprit.policy || c.kind != e.culprit.kind) && h.last.Sub(e.named) >= notAgain {
			e.culprit, e.named = c, h.last
			h.note(name, "bad", "refuses now because %s", h.cause(source, c))
		}
	case e.refusing && h.last.Sub(e.until) >= calmAfter:
		e.refusing = false
		h.note(name, "good", "stops refusing, after %s and about %.0f requests", span(e.until.Sub(e.since)+every), e.refused*every.Seconds())
	}
}

// states notes changes in the source's policies: the state of a breaker, the reason of a shedder, a limit that was
// tuned, a sensor that failed.
func (h *history) states(name string, source []*series, e *episode) {
	seen := map[string]bool{}
	for _, s := range source {
		v, known := h.now(s)
		if !known {
			continue
		}
		key, text, say := s.state(v)
		if key == "" || seen[key] {
			continue
		}
		seen[key] = true
		was, had := e.states[key]
		switch {
		case !had, was == unread && e.noted[key].IsZero(): // before the first request, a sensor has no reading
			e.states[key] = text
		case was != text && h.last.Sub(e.noted[key]) >= notAgain:
			e.states[key], e.noted[key] = text, h.last
			tone, sentence := say(was, text)
			h.note(name, tone, "%s", sentence)
		}
	}
}

// The states of a sensor.
const (
	unread = "cannot be read"
	reads  = "can be read"
)

// state returns a key and a text for a series whose changes are worth a note, and how to word them, or "".
func (s *series) state(v float64) (key, text string, say func(was, is string) (tone, sentence string)) {
	kind, figureName := s.kind()
	subject := subject(kind, s.label("policy"))
	own := strings.Join([]string{kind, s.label("policy"), figureName}, "\x00")
	switch figureName {
	case "sensor_up":
		sensor, is := s.label("sensor"), unread
		if v == 1 {
			is = reads
		}
		return own + "\x00" + sensor, is, func(_, is string) (string, string) {
			if is == reads {
				return "good", fmt.Sprintf("%s: the sensor %s can be read again", subject, sensor)
			}
			return "bad", fmt.Sprintf("%s: the sensor %s %s", subject, sensor, is)
		}
	case "state", "overload_reason", "mode", "breaker_state":
		if v != 1 {
			return "", "", nil
		}
		is := s.label("state") + s.label("reason") + s.label("mode")
		return own, is, func(was, is string) (string, string) {
			return toneOf(is), fmt.Sprintf("%s: %s → %s", subject, was, is)
		}
	case "version", "pinned", "up":
		if kind != "rules" {
			return "", "", nil
		}
		return own, figure(v), func(was, is string) (string, string) {
			switch {
			case figureName == "version":
				return "plain", fmt.Sprintf("the rules are of version %s now, before of %s", is, was)
			case figureName == "pinned":
				return "plain", "the rules are " + map[bool]string{true: "pinned", false: "not pinned any more"}[is == "1"]
			case is == "1":
				return "good", "the rules can be read and are valid again"
			}
			return "bad", "the rules cannot be read or are refused, the last good ones stay"
		}
	case "limit", "rate", "burst":
		if kind == "shedder" || kind == "adaptive" { // these move by themselves
			return "", "", nil
		}
		return own, figure(v), func(was, is string) (string, string) {
			return "plain", fmt.Sprintf("%s: %s %s → %s", subject, figureName, was, is)
		}
	}
	return "", "", nil
}

// subject names a policy: "breaker checkout-db", or "shedder" if it has no name of its own.
func subject(kind, policy string) string {
	if policy == "" || policy == kind {
		return kind
	}
	return kind + " " + policy
}

// toneOf says whether a state is a good one.
func toneOf(state string) string {
	switch state {
	case "closed", "calm":
		return "good"
	case "half-open", "normal", "disabled":
		return "plain"
	}
	return "bad"
}
