package console

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// A verdict is what a source does at present, in words.
type verdict struct {
	Source string `json:"source"`
	State  string `json:"state"` // "refusing", "calm", "idle" or "unknown"
	Text   string `json:"text"`

	refused float64 // per second, to sort by
	aside   bool    // it is not about requests
}

// worth is how long a wait for a processor must be to be named as the cause.
const worth = 2 * time.Millisecond

// verdict describes a source in one sentence.
func (h *history) verdict(source string) verdict {
	all := h.groups[source]
	f := h.flow(all, recent)
	e := h.sources[source]
	v := verdict{Source: source, refused: f.refused}
	switch {
	case h.seq < 2:
		v.State, v.Text = "unknown", "The first second is not over."
	case f.refused > 0:
		v.State = "refusing"
		share := percent(f.share())
		if f.partly {
			share = figure(f.refused) + " requests/s"
		}
		v.Text = fmt.Sprintf("Refusing %s%s%s", share, lasting(e, h.last), h.because(all))
	case !f.known:
		v.State, v.Text = "unknown", "It counts no requests. Its values are under All figures."
		if text, up := h.rules(all); text != "" {
			v.Text, v.aside = text, true
			if up {
				v.State = "calm"
			}
		}
	case f.partly:
		v.State, v.Text = "calm", "Refusing nothing."+h.before(e)
	case f.admitted == 0:
		v.State, v.Text = "idle", "No requests."+h.before(e)
	default:
		v.State = "calm"
		v.Text = fmt.Sprintf("Refusing nothing: %s requests/s%s.%s", figure(f.admitted), h.room(all), h.before(e))
	}
	return v
}

// rules says which version of the rules is in force, if the source is a set of them, and whether their source is well.
func (h *history) rules(all []*series) (text string, up bool) {
	version, ok := h.value(all, "", "spillway.rules.version")
	if !ok {
		return "", false
	}
	text = "The rules are those of version " + figure(version)
	if pinned, _ := h.value(all, "", "spillway.rules.pinned"); pinned == 1 {
		text += ", pinned"
	}
	if well, _ := h.value(all, "", "spillway.rules.up"); well == 1 {
		return text + ".", true
	}
	text += ". The last document could not be read or was refused"
	if age, ok := h.value(all, "", "spillway.rules.age"); ok && age >= 1 {
		text += "; the last good one was seen " + span(time.Duration(age*float64(time.Second))) + " ago"
	}
	return text + ".", false
}

// lasting says how long an episode of refusals has lasted.
func lasting(e *episode, now time.Time) string {
	if e == nil || !e.refusing {
		return ""
	}
	return " for " + span(now.Sub(e.since)+every)
}

// before says when the last episode of refusals ended.
func (h *history) before(e *episode) string {
	if e == nil || e.until.IsZero() {
		return ""
	}
	return fmt.Sprintf(" The last refusal was %s ago.", span(h.last.Sub(e.until)))
}

// because gives the cause of the refusals, the limit behind it, and the priorities.
func (h *history) because(all []*series) string {
	c, ok := h.culprit(all, recent)
	if !ok {
		return "."
	}
	text := " because " + h.cause(all, c)
	if limit, ok := h.value(all, c.policy, "spillway."+c.kind+".limit"); ok {
		text += "; limit " + figure(limit)
		if n, ok := h.value(all, c.policy, "spillway."+c.kind+".in_flight"); ok {
			text += ", " + figure(n) + " in flight"
		}
	}
	if p := h.priorities(all, c.policy); p != "" {
		text += "; " + p
	}
	return text + "."
}

// cause says in words why a policy refuses.
func (h *history) cause(all []*series, c culprit) string {
	if c.kind != "shedder" {
		if state := h.state(all, c.policy, "spillway.breaker.state", "state"); c.kind == "breaker" && state != "" {
			return "the " + subject(c.kind, c.policy) + " is " + state
		}
		if c.kind == "" { // it is not a source
			c.kind = "policy"
		}
		return "the " + subject(c.kind, c.policy) + " says “" + c.reason + "”"
	}
	wait, ok := h.value(all, c.policy, "spillway.shedder.queue_delay")
	waiting := ok && wait >= worth.Seconds()
	switch reason := h.state(all, c.policy, "spillway.shedder.overload_reason", "reason"); {
	case waiting && (reason == "cpu" || c.reason == "cpu queue"):
		return "goroutines wait " + seconds(wait) + " for a CPU"
	case reason == "cpu":
		if cpu, ok := h.value(all, c.policy, "spillway.shedder.cpu_smoothed"); ok {
			return "the CPU is " + percent(cpu) + " busy"
		}
		return "the CPU is short"
	case reason == "signal":
		if s := h.state(all, c.policy, "spillway.shedder.signal", "signal"); s != "" {
			return "the signal " + s + " is high"
		}
		return "a signal was high"
	case reason == "full":
		if rt, ok := h.value(all, c.policy, "spillway.shedder.min_rt"); ok && rt > 0 {
			return "it gets more requests than it can answer in its usual " + seconds(rt)
		}
	}
	return "its limit is reached"
}

// priorities says which share of each priority a shedder refuses, if it has seen more than one.
func (h *history) priorities(all []*series, policy string) string {
	var parts []string
	seen, shares := 0, true
	for _, priority := range []string{"sheddable", "normal", "critical"} {
		var f flow
		counted := false
		for _, s := range all {
			if s.label("policy") != policy || s.label("priority") != priority {
				continue
			}
			v, ok := h.mean(s, recent)
			switch {
			case !ok:
			case s.metric.Name == "spillway.shedder.priority_refusals":
				f.refused = v
			case s.metric.Name == "spillway.shedder.priority_admissions":
				f.admitted, counted = v, true
			}
		}
		shares = shares && counted
		switch {
		case f.refused+f.admitted <= 0 && counted:
			continue
		case !counted:
			parts = append(parts, priority+" "+figure(f.refused)+"/s")
		default:
			parts = append(parts, priority+" "+portion(f.share()))
		}
		seen++
	}
	if seen < 2 || !shares {
		return ""
	}
	return strings.Join(parts, ", ")
}

// room says how far a calm source is from its limit.
func (h *history) room(all []*series) string {
	var text string
	for _, s := range all {
		if _, figureName := s.kind(); figureName != "limit" {
			continue
		}
		kind, _ := s.kind()
		limit, known := h.now(s)
		inFlight, counted := h.value(all, s.label("policy"), "spillway."+kind+".in_flight")
		if known && counted {
			text = ", " + figure(inFlight) + " of at most " + figure(limit) + " in flight"
			break
		}
	}
	for _, s := range all {
		if cpu, ok := h.now(s); ok && s.metric.Name == "spillway.shedder.cpu_smoothed" {
			return text + ", CPU " + percent(cpu)
		}
	}
	return text
}

// portion is percent with words for its ends.
func portion(share float64) string {
	switch {
	case share >= 0.995:
		return "all"
	case share <= 0:
		return "none"
	}
	return percent(share)
}

// percent returns a share with two digits, such as "38 %" or "0.4 %".
func percent(share float64) string {
	switch v := 100 * share; {
	case v > 0 && v < 0.1:
		return "less than 0.1 %"
	case v < 9.95:
		return trim(v, 1) + " %"
	default:
		return trim(v, 0) + " %"
	}
}

// figure returns a number with at least two significant digits.
func figure(v float64) string {
	if v < 9.95 {
		return trim(v, 1)
	}
	return trim(v, 0)
}

func trim(v float64, digits int) string {
	text := fmt.Sprintf("%.*f", digits, v)
	return strings.TrimSuffix(text, ".0")
}

// seconds returns a short time with its unit.
func seconds(v float64) string {
	if v < 1 {
		return figure(1e3*v) + " ms"
	}
	return figure(v) + " s"
}

// span returns a duration as people say it: "12 s", "3 min", "2 h 5 min".
func span(d time.Duration) string {
	switch s := int(math.Round(d.Seconds())); {
	case s < 120:
		return fmt.Sprintf("%d s", s)
	case s < 7200:
		return fmt.Sprintf("%d min", s/60)
	default:
		return fmt.Sprintf("%d h %d min", s/3600, s/60%60)
	}
}
