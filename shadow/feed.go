package shadow

import (
	"iter"
	"strconv"

	"github.com/spillway-go/spillway/internal/feed"
	"github.com/spillway-go/spillway/stats"
)

var statsRows = []feed.Row{
	feed.Count("Admitted", "spillway.shadow.requests", "{request}", requests, stats.Label{Name: "result", Value: "admitted"}),
	feed.Count("WouldRefuse", "spillway.shadow.requests", "{request}", requests, stats.Label{Name: "result", Value: "refused"}),
	feed.Count("Cancelled", "spillway.shadow.requests", "{request}", requests, stats.Label{Name: "result", Value: "cancelled"}),
	feed.ByReason("ByReason", "spillway.shadow.refusals", "Requests that the candidate refused, by policy and reason."),
	feed.Count("Enforced", "spillway.shadow.enforced", "{request}", "Requests that were really refused because of Enforce."),
	feed.Count("RefusedBehind", "spillway.shadow.disagreements", "{request}", disagreements, stats.Label{Name: "candidate", Value: "admitted"}),
	feed.Count("LetThrough", "spillway.shadow.disagreements", "{request}", disagreements, stats.Label{Name: "candidate", Value: "refused"}),
	feed.Count("RegretAdmitted", "spillway.shadow.regrets", "{request}", regrets, stats.Label{Name: "candidate", Value: "admitted"}),
	feed.Count("RegretRefused", "spillway.shadow.regrets", "{request}", regrets, stats.Label{Name: "candidate", Value: "refused"}),
}

const (
	requests      = "Requests by what the candidate decided."
	disagreements = "Ended requests about which the candidate decided otherwise than the gate."
	regrets       = "Ended requests about which the candidate was wrong."
)

// Metrics yields the figures of [Shadow.Stats], and then those of each candidate that is a [stats.Source]. All have the
// label shadow, which is the number of the candidate.
func (s *Shadow) Metrics() iter.Seq[stats.Metric] {
	return func(yield func(stats.Metric) bool) {
		for i, st := range s.Stats() {
			labels := []stats.Label{{Name: "policy", Value: s.name(i)}, {Name: "shadow", Value: strconv.Itoa(i)}}
			for m := range feed.With(labels, feed.Of(s, statsRows, func() Stats { return st })) {
				if !yield(m) {
					return
				}
			}
		}
		for i := range s.candidates {
			source, ok := s.candidates[i].policy.(stats.Source)
			if !ok {
				continue
			}
			for m := range feed.With([]stats.Label{{Name: "shadow", Value: strconv.Itoa(i)}}, source.Metrics()) {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// name returns the name of a candidate, or "" if it has none.
func (s *Shadow) name(i int) string {
	if source, ok := s.candidates[i].policy.(stats.Source); ok {
		for m := range source.Metrics() {
			return m.Label("policy")
		}
	}
	return ""
}

var _ stats.Source = (*Shadow)(nil)
