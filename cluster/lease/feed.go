package lease

import (
	"iter"

	"github.com/spillway-go/spillway/internal/feed"
	"github.com/spillway-go/spillway/stats"
)

var statsRows = []feed.Row{
	feed.Gauge("Keys", "spillway.lease.keys", "{key}", "Keys that are kept."),
	feed.Gauge("Leased", "spillway.lease.leased", "{key}", "Keys that are decided locally."),
	feed.Count("AdmittedTokens", "spillway.lease.tokens", "{token}", decided, stats.Label{Name: "result", Value: "admitted"}),
	feed.Count("RefusedTokens", "spillway.lease.tokens", "{token}", decided, stats.Label{Name: "result", Value: "refused"}),
	feed.Count("Asked", "spillway.lease.asked", "{request}", "Requests that asked Redis."),
	feed.Count("Unanswered", "spillway.lease.unanswered", "{request}", "Requests decided without Redis because it did not answer."),
	feed.Count("Syncs", "spillway.lease.syncs", "{call}", "Renewals of leases."),
	feed.Count("Failures", "spillway.lease.failures", "{call}", "Renewals without an answer in time."),
	feed.Gauge("Nodes", "spillway.lease.nodes", "{process}", "Processes that share the limit, as far as known."),
}

const decided = "Tokens by what the limit decided."

// Metrics yields the figures of [Limit.Stats]. It yields none of a single key, since keys may come from clients.
func (q *Limit) Metrics() iter.Seq[stats.Metric] { return feed.Of(q, statsRows, q.Stats) }

var _ stats.Source = (*Limit)(nil)
