package adaptive

import (
	"iter"

	"github.com/spillway-go/spillway/internal/feed"
	"github.com/spillway-go/spillway/stats"
)

var statsRows = []feed.Row{
	feed.Gauge("Limit", "spillway.adaptive.limit", "{request}", "Greatest number of requests in flight."),
	feed.Gauge("InFlight", "spillway.adaptive.in_flight", "{request}", "Admitted requests that have not ended."),
	feed.Count("Admitted", "spillway.adaptive.requests", "{request}", requests, stats.Label{Name: "result", Value: "admitted"}),
	feed.Count("Refused", "spillway.adaptive.requests", "{request}", requests, stats.Label{Name: "result", Value: "refused"}),
	feed.ByReason("ByReason", "spillway.adaptive.refusals", "Requests refused, by reason."),
	feed.Gauge("Baseline", "spillway.adaptive.baseline", "s", "Latency that the estimator considers healthy. 0 if it is not known."),
	feed.Gauge("Ceiling", "spillway.adaptive.ceiling", "s", "Greatest latency that the baseline may rise to. 0 if there is no bound."),
}

const requests = "Requests by what the limit decided."

// Metrics yields the figures of [Limit.Stats].
func (l *Limit) Metrics() iter.Seq[stats.Metric] { return feed.Of(l, statsRows, l.Stats) }

var _ stats.Source = (*Limit)(nil)
