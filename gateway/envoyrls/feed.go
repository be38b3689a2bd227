package envoyrls

import (
	"iter"
	"time"

	"github.com/spillway-go/spillway/internal/feed"
	"github.com/spillway-go/spillway/stats"
)

// Stats is a snapshot of a [Service].
type Stats struct {
	Rules      []RuleStats   // of the rules in force, sorted by domain and path
	Unknown    int64         // descriptors without a rule, which pass
	Unanswered int64         // decisions without Redis, because it did not answer
	Failed     int64         // requests answered with an error, because of Redis or because Envoy gave up
	Applied    int64         // times that files took effect
	Refused    int64         // times that a file was refused
	Unreadable int64         // times that a file could not be read
	Age        time.Duration // since all files were last valid
	Err        error         // why the last read failed, or a file was refused
}

// RuleStats are the counts of a rule. They survive a reload.
type RuleStats struct {
	Domain, Rule string // "shop" and "path=/api/*|method=POST"; all limits that Envoy sent are the Rule "=sent by Envoy"
	Admitted     int64  // descriptors within the limit, also those of requests that another limit refused
	Refused      int64  // descriptors over the limit
	Shadowed     int64  // descriptors that shadow_mode kept from being refused
}

// Stats returns a snapshot.
func (s *Service) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{
		Unknown: s.unknown.Load(), Unanswered: s.unanswered.Load(), Failed: s.failed.Load(),
		Applied: s.reload.applied, Refused: s.reload.refused, Unreadable: s.reload.unreadable,
		Age: time.Since(s.reload.good), Err: s.reload.err,
	}
	c := s.config.Load()
	for _, r := range c.rules {
		st.Rules = append(st.Rules, r.counts.stats(r.domain, r.path))
	}
	for _, name := range sorted(c.own) {
		if own := c.own[name].stats(name, ownLimit); own.Admitted+own.Refused+own.Shadowed > 0 {
			st.Rules = append(st.Rules, own)
		}
	}
	return st
}

func (c *counts) stats(domain, path string) RuleStats {
	return RuleStats{Domain: domain, Rule: path, Admitted: c.ok.Load(), Refused: c.over.Load(), Shadowed: c.shadowed.Load()}
}

const (
	descriptors = "Descriptors by what became of them, by rule."
	loads       = "Reads of the files by their result. A read without a change does not count."
)

var statsRows = []feed.Row{
	feed.Count("Unknown", "spillway.envoyrls.unknown", "{descriptor}", "Descriptors without a rule, which pass."),
	feed.Count("Unanswered", "spillway.envoyrls.unanswered", "{decision}", "Decisions without Redis, because it did not answer."),
	feed.Count("Failed", "spillway.envoyrls.failed", "{request}", "Requests answered with an error."),
	feed.Count("Applied", "spillway.envoyrls.reads", "{read}", loads, stats.Label{Name: "result", Value: "applied"}),
	feed.Count("Refused", "spillway.envoyrls.reads", "{read}", loads, stats.Label{Name: "result", Value: "refused"}),
	feed.Count("Unreadable", "spillway.envoyrls.reads", "{read}", loads, stats.Label{Name: "result", Value: "unreadable"}),
	feed.Gauge("Age", "spillway.envoyrls.age", "s", "Time since all files were last valid."),
	feed.Up("Err", "spillway.envoyrls.up", "1 if all files are valid and in force."),
}

// Metrics yields the figures of [Service.Stats].
func (s *Service) Metrics() iter.Seq[stats.Metric] {
	return func(yield func(stats.Metric) bool) {
		st := s.Stats()
		for m := range feed.Of(s, statsRows, func() Stats { return st }) {
			if !yield(m) {
				return
			}
		}
		for _, r := range st.Rules {
			for _, c := range [...]struct {
				result string
				n      int64
			}{{"admitted", r.Admitted}, {"refused", r.Refused}, {"shadowed", r.Shadowed}} {
				if !yield(stats.Metric{
					Name: "spillway.envoyrls.descriptors", Help: descriptors, Unit: "{descriptor}", Kind: stats.KindCounter,
					Value: float64(c.n), Of: s,
					Labels: []stats.Label{{Name: "domain", Value: r.Domain}, {Name: "rule", Value: r.Rule}, {Name: "result", Value: c.result}},
				}) {
					return
				}
			}
		}
	}
}

var _ stats.Source = (*Service)(nil)
