package spillway

import (
	"iter"

	"github.com/spillway-go/spillway/internal/feed"
	"github.com/spillway-go/spillway/stats"
)

var gateStatsRows = []feed.Row{
	feed.Count("Admitted", "spillway.gate.requests", "{request}", gateRequests, stats.Label{Name: "result", Value: "admitted"}),
	feed.Count("Refused", "spillway.gate.requests", "{request}", gateRequests, stats.Label{Name: "result", Value: "refused"}),
	feed.Count("Cancelled", "spillway.gate.requests", "{request}", gateRequests, stats.Label{Name: "result", Value: "cancelled"}),
	feed.Gauge("InFlight", "spillway.gate.in_flight", "{request}", "Admitted requests that have not ended."),
	feed.Count("Succeeded", "spillway.gate.outcomes", "{request}", gateOutcomes, stats.Label{Name: "outcome", Value: "success"}),
	feed.Count("Failed", "spillway.gate.outcomes", "{request}", gateOutcomes, stats.Label{Name: "outcome", Value: "failure"}),
	feed.Count("Dropped", "spillway.gate.outcomes", "{request}", gateOutcomes, stats.Label{Name: "outcome", Value: "dropped"}),
	feed.Count("Ignored", "spillway.gate.outcomes", "{request}", gateOutcomes, stats.Label{Name: "outcome", Value: "ignored"}),
	feed.ByReason("ByReason", "spillway.gate.refusals", "Requests refused, by the policy that refused and its reason."),
}

const (
	gateRequests = "Requests by what the gate decided."
	gateOutcomes = "Admitted requests that have ended, by outcome."
)

// Metrics yields the metrics of the Gate and then those of each of its policies that is a [stats.Source].
func (g *Gate) Metrics() iter.Seq[stats.Metric] {
	parts := []iter.Seq[stats.Metric]{feed.Of(g, gateStatsRows, g.Stats)}
	for _, p := range g.policies {
		if source, ok := p.(stats.Source); ok {
			parts = append(parts, source.Metrics())
		}
	}
	return feed.Join(parts...)
}

var _ stats.Source = (*Gate)(nil)
