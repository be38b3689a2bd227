package httpgate

import (
	"iter"

	"github.com/spillway-go/spillway/internal/feed"
	"github.com/spillway-go/spillway/stats"
)

var statsRows = []feed.Row{
	feed.Count("Exempt", "spillway.http.server.exempt", "{request}", "Requests that bypassed the gate."),
	feed.Gauge("LongLived", "spillway.http.server.long_lived", "{request}", "Requests that have left the gate and are open."),
	feed.Count("LongLivedRefused", "spillway.http.server.long_lived_refused", "{request}", "Long-lived requests refused because too many were open."),
	feed.Count("HeldBack", "spillway.http.client.held_back", "{request}", "Requests not sent because the server asked for it."),
	feed.Count("Throttled", "spillway.http.client.throttled", "{request}", "Requests not sent because the server refused many."),
	feed.Count("Retries", "spillway.http.client.retries", "{request}", "Requests sent again."),
	feed.Count("Leaked", "spillway.http.client.leaked", "{response}", "Responses that were never closed."),
}

// serverRows is how many of statsRows are those of a Middleware; the rest are those of a Transport.
const serverRows = 3

// Metrics yields the figures of [Middleware.Stats], and then those of the Gate and its policies.
func (m *Middleware) Metrics() iter.Seq[stats.Metric] {
	return feed.Join(feed.Of(m, statsRows[:serverRows], m.Stats), m.gate.Metrics())
}

// Metrics yields the figures of [Transport.Stats], those of the Gate and its policies, and those of the Budget.
func (t *Transport) Metrics() iter.Seq[stats.Metric] {
	all := feed.Join(feed.Of(t, statsRows[serverRows:], t.Stats), t.gate.Metrics())
	if t.o.Budget != nil {
		all = feed.Join(all, t.o.Budget.Metrics())
	}
	return all
}

// budgetStats is a snapshot of a RetryBudget.
type budgetStats struct {
	Tokens    float64
	MaxTokens float64
}

var budgetStatsRows = []feed.Row{
	feed.Gauge("Tokens", "spillway.http.client.retry_tokens", "{token}", "Tokens left. Retries are affordable above half of the maximum."),
	feed.Gauge("MaxTokens", "spillway.http.client.max_retry_tokens", "{token}", "Greatest number of tokens."),
}

// Metrics yields the number of tokens and its maximum.
func (b *RetryBudget) Metrics() iter.Seq[stats.Metric] {
	return feed.Of(b, budgetStatsRows, func() budgetStats { return budgetStats{Tokens: b.Tokens(), MaxTokens: float64(b.max) / thousandths} })
}

var (
	_ stats.Source = (*Middleware)(nil)
	_ stats.Source = (*Transport)(nil)
	_ stats.Source = (*RetryBudget)(nil)
)
