package deadline

import (
	"iter"

	"github.com/spillway-go/spillway/internal/feed"
	"github.com/spillway-go/spillway/stats"
)

var statsRows = []feed.Row{
	feed.Gauge("Routes", "spillway.deadline.routes", "{route}", "Routes whose latency is known or being learnt."),
	feed.Count("Refused", "spillway.deadline.refused", "{request}", "Requests refused because too little time was left."),
	feed.ByReason("ByReason", "spillway.deadline.refusals", "Requests refused, by reason."),
	feed.Count("Probes", "spillway.deadline.probes", "{request}", "Late requests admitted as probes."),
}

// Metrics yields the figures of [Policy.Stats].
func (p *Policy) Metrics() iter.Seq[stats.Metric] { return feed.Of(p, statsRows, p.Stats) }

var _ stats.Source = (*Policy)(nil)
