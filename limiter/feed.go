package limiter

import (
	"iter"
	"slices"

	"github.com/spillway-go/spillway/internal/feed"
	"github.com/spillway-go/spillway/stats"
)

// The rows that say something about every limit come first, so that a limit without places or a queue has fewer.
var statsRows = []feed.Row{
	feed.Count("Admitted", "spillway.limiter.requests", "{request}", requests, stats.Label{Name: "result", Value: "admitted"}),
	feed.Count("Refused", "spillway.limiter.requests", "{request}", requests, stats.Label{Name: "result", Value: "refused"}),
	feed.Count("Impossible", "spillway.limiter.requests", "{request}", requests, stats.Label{Name: "result", Value: "impossible"}),
	feed.ByReason("ByReason", "spillway.limiter.refusals", "Requests refused, by reason."),
	feed.Count("Returned", "spillway.limiter.returned", "{request}", "Admitted requests whose tokens were given back."),

	feed.Gauge("InFlight", "spillway.limiter.in_flight", "{place}", "Places taken."),

	feed.Gauge("Waiting", "spillway.limiter.waiting", "{request}", "Requests that wait."),
	feed.Count("Cancelled", "spillway.limiter.cancelled", "{request}", "Requests that gave up while they waited."),
	feed.Count("Waited", "spillway.limiter.waited", "{request}", "Admitted requests that had to wait."),
	feed.Histogram("Waits", "spillway.limiter.wait", wait, stats.Label{Name: "result", Value: "admitted"}),
	feed.Histogram("RefusedAfter", "spillway.limiter.wait", wait, stats.Label{Name: "result", Value: "refused"}),
}

const (
	requests   = "Requests by what the limit decided."
	wait       = "Time that requests waited, of those that had to."
	tokenRows  = 5 // the rows for limits of tokens
	placesFrom = 1 // a Concurrency does not count admitted requests: a count would make 11 ns 16, and the Gate counts them
	placesRows = 6
)

func (l *limit[S]) Metrics() iter.Seq[stats.Metric] {
	return feed.Of(l, statsRows[:tokenRows], l.Stats)
}

func (c *places) Metrics() iter.Seq[stats.Metric] {
	return feed.Of(c, statsRows[placesFrom:placesRows], c.Stats)
}

func (q *queue) Metrics() iter.Seq[stats.Metric] { return feed.Of(q, statsRows, q.Stats) }

func (s *shaper) Metrics() iter.Seq[stats.Metric] { return feed.Of(s, statsRows, s.Stats) }

func (x *xtime) Metrics() iter.Seq[stats.Metric] { return feed.Of(x, statsRows[:tokenRows], x.Stats) }

var keyedStatsRows = []feed.Row{
	feed.Gauge("Keys", "spillway.limiter.keys", "{key}", "Keys that have a limit of their own."),
	feed.Gauge("MaxKeys", "spillway.limiter.max_keys", "{key}", "Greatest number of keys that have a limit of their own."),
	feed.Count("Overflowed", "spillway.limiter.overflowed", "{request}", "Requests of keys that shared a limit for lack of room."),
	feed.Count("Evicted", "spillway.limiter.evicted", "{key}", "Idle keys forgotten."),
}

// Metrics yields the figures of [Keyed.Stats]. It yields none of a single key, since keys may come from clients.
func (k *Keyed) Metrics() iter.Seq[stats.Metric] {
	return feed.Of(k, slices.Concat(statsRows[:placesRows], keyedStatsRows), k.Stats)
}

var registryStatsRows = []feed.Row{
	feed.Gauge("Keys", "spillway.registry.keys", "{key}", "Keys that have a policy of their own."),
	feed.Gauge("MaxKeys", "spillway.registry.max_keys", "{key}", "Greatest number of keys that have a policy of their own."),
	feed.Count("Overflowed", "spillway.registry.overflowed", "{request}", "Requests with a key that the shared policy decided."),
	feed.Count("Evicted", "spillway.registry.evicted", "{key}", "Idle keys forgotten."),
	feed.Count("Failed", "spillway.registry.failed", "{call}", "Calls of New that returned no policy, or panicked."),
}

// Metrics yields the figures of [Registry.Stats]. It yields none of a single key, since keys may come from clients.
func (g *Registry) Metrics() iter.Seq[stats.Metric] { return feed.Of(g, registryStatsRows, g.Stats) }

var (
	_ stats.Source = Limiter(nil)
	_ stats.Source = (*Keyed)(nil)
	_ stats.Source = (*Registry)(nil)
)
