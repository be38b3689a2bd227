package lock

import (
	"iter"

	"github.com/spillway-go/spillway/internal/feed"
	"github.com/spillway-go/spillway/stats"
)

var statsRows = []feed.Row{
	feed.Gauge("Limit", "spillway.lock.limit", "{permit}", "Greatest number of permits held by all processes."),
	feed.Gauge("InFlight", "spillway.lock.in_flight", "{permit}", "Permits held by this process."),
	feed.Gauge("Waiting", "spillway.lock.waiting", "{call}", "Calls that wait in this process."),
	feed.Gauge("Returning", "spillway.lock.returning", "{permit}", "Released permits that Redis does not know of yet."),
	feed.Gauge("Listening", "spillway.lock.listening", "", "1 if messages wake waiting calls, 0 if they poll."),
	feed.Count("Admitted", "spillway.lock.requests", "{call}", requests, stats.Label{Name: "result", Value: "admitted"}),
	feed.Count("Refused", "spillway.lock.requests", "{call}", requests, stats.Label{Name: "result", Value: "refused"}),
	feed.ByReason("ByReason", "spillway.lock.refusals", "Calls refused, by reason."),
	feed.Count("ByFallback", "spillway.lock.fallbacks", "{call}", "Calls admitted without a permit because of Fallback."),
	feed.Count("Unanswered", "spillway.lock.unanswered", "{call}", "Calls that Redis did not answer."),
	feed.Count("Lapsed", "spillway.lock.lapsed", "{permit}", "Leases that ended before they were given back."),
	feed.Count("Expiring", "spillway.lock.expiring", "{permit}", "Permits that return only by their TTL."),
	feed.Histogram("Waits", "spillway.lock.wait", wait, stats.Label{Name: "result", Value: "admitted"}),
	feed.Histogram("RefusedAfter", "spillway.lock.wait", wait, stats.Label{Name: "result", Value: "refused"}),
}

const (
	requests = "Calls by what the semaphore decided."
	wait     = "Time that calls of Acquire waited, of those that had to."
)

// Metrics yields the figures of [Semaphore.Stats].
func (s *Semaphore) Metrics() iter.Seq[stats.Metric] { return feed.Of(s, statsRows, s.Stats) }

var _ stats.Source = (*Semaphore)(nil)
