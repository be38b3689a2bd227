package console

import (
	"slices"
	"strings"

	"github.com/spillway-go/spillway/stats"
)

// recent is the number of samples that the sentence is about: more would make it late, fewer would make it jump.
const recent = 3

// label returns the value of a label of s, or "".
func (s *series) label(name string) string { return s.metric.Label(name) }

// kind returns the part of the metric's name after "spillway.", such as "gate" or "shedder", and what follows it.
func (s *series) kind() (kind, figure string) {
	kind, figure, _ = strings.Cut(strings.TrimPrefix(s.metric.Name, "spillway."), ".")
	return kind, figure
}

// flow counts what happened to the requests of a source, per second.
type flow struct {
	admitted, refused float64
	known             bool // whether it counts requests
	partly            bool // whether it counts only those that it refuses
}

func (f flow) share() float64 {
	if f.refused <= 0 {
		return 0
	}
	return f.refused / (f.admitted + f.refused)
}

// flow returns the requests of a source in the last n samples: those of its gate or, if it has none, of its policies.
func (h *history) flow(source []*series, n int64) (f flow) {
	gated := slices.ContainsFunc(source, func(s *series) bool { return s.metric.Name == "spillway.gate.requests" })
	for _, s := range source {
		kind, figure := s.kind()
		if figure != "requests" && (figure != "refused" || s.metric.Kind != stats.KindCounter) || gated && kind != "gate" {
			continue
		}
		v, ok := h.mean(s, n)
		if !ok {
			continue
		}
		f.known = true
		if figure == "refused" { // a breaker does not count calls that it admits
			f.refused, f.partly = f.refused+v, true
			continue
		}
		switch s.label("result") {
		case "admitted":
			f.admitted += v
		case "refused":
			f.refused += v
		}
	}
	return f
}

// value returns the present value of a figure of one policy.
func (h *history) value(source []*series, policy, name string) (float64, bool) {
	for _, s := range source {
		if s.metric.Name == name && s.label("policy") == policy {
			return h.now(s)
		}
	}
	return 0, false
}

// state returns the value of a label whose series is 1 at present, such as the reason of a shedder.
func (h *history) state(source []*series, policy, name, label string) string {
	for _, s := range source {
		if s.metric.Name != name || s.label("policy") != policy {
			continue
		}
		if v, _ := h.now(s); v == 1 {
			return s.label(label)
		}
	}
	return ""
}

// culprit is the policy that refuses most, and why.
type culprit struct{ policy, reason, kind string }

// culprit returns the policy that refused most of the requests of a source in the last n samples.
func (h *history) culprit(source []*series, n int64) (c culprit, ok bool) {
	most := 0.0
	for _, gated := range []bool{true, false} { // a gate knows the reasons of policies that do not count themselves
		for _, s := range source {
			kind, figure := s.kind()
			if figure != "refusals" || s.label("reason") == "" || (kind == "gate") != gated {
				continue
			}
			if v, known := h.mean(s, n); known && v > most {
				most, c = v, culprit{s.label("policy"), s.label("reason"), ""}
			}
		}
		if most > 0 {
			break
		}
	}
	for _, s := range source {
		if kind, _ := s.kind(); kind != "gate" && s.label("policy") == c.policy {
			c.kind = kind
			break
		}
	}
	return c, most > 0
}
