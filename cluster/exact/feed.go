package exact

import (
	"iter"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/internal/feed"
	"github.com/spillway-go/spillway/stats"
)

var statsRows = []feed.Row{
	feed.Count("Admitted", "spillway.exact.requests", "{request}", requests, stats.Label{Name: "result", Value: "admitted"}),
	feed.Count("Refused", "spillway.exact.requests", "{request}", requests, stats.Label{Name: "result", Value: "refused"}),
	feed.Count("Impossible", "spillway.exact.requests", "{request}", requests, stats.Label{Name: "result", Value: "impossible"}),
	feed.ByReason("ByReason", "spillway.exact.refusals", "Requests refused, by reason."),
	feed.Count("Returned", "spillway.exact.returned", "{request}", "Admitted requests whose tokens were given back."),
	feed.By("AdmittedBy", "spillway.exact.decisions", "{request}", decisions, "source", sources, stats.Label{Name: "result", Value: "admitted"}),
	feed.By("RefusedBy", "spillway.exact.decisions", "{request}", decisions, "source", sources, stats.Label{Name: "result", Value: "refused"}),
	feed.Count("Unanswered", "spillway.exact.unanswered", "{call}", "Calls that Redis did not answer, or that the breaker blocked."),
	feed.Count("Near", "spillway.exact.near", "{request}", "Requests that Redis admitted and that left less than a fifth of a rule."),
	feed.State("Breaker", "spillway.exact.breaker_state", "1 for the present state of the breaker in front of Redis.", "state",
		"closed", "half-open", "open"),
}

const (
	requests  = "Requests by what the limit decided."
	decisions = "Requests by who decided and what."
)

var sources = []string{
	cluster.FromRedis.String(), cluster.FromMemory.String(), cluster.FromLease.String(), cluster.FromHold.String(),
	cluster.FromDivide.String(), cluster.FromNobody.String(),
}

// Metrics yields the figures of [Limit.Stats].
func (l *Limit) Metrics() iter.Seq[stats.Metric] { return feed.Of(l, statsRows, l.Stats) }

// Metrics yields the figures of the [Limit] that the tokens come from.
func (a *Allowance) Metrics() iter.Seq[stats.Metric] {
	if a.limit == nil {
		return func(func(stats.Metric) bool) {}
	}
	return a.limit.Metrics()
}

var (
	_ stats.Source = (*Limit)(nil)
	_ stats.Source = (*Allowance)(nil)
)
