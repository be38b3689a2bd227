package breaker

import (
	"iter"

	"github.com/spillway-go/spillway/internal/feed"
	"github.com/spillway-go/spillway/stats"
)

var statsRows = []feed.Row{
	feed.State("State", "spillway.breaker.state", "1 for the present state.", "state", string(Closed), string(HalfOpen), string(Open)),
	feed.Info("Mode", "spillway.breaker.mode", "Always 1. The label is the present mode.", "mode"),
	feed.Gauge("Since", "spillway.breaker.state_since", "s", "Unix time of the last change of state. Absent if there was none."),
	feed.Info("Reason", "spillway.breaker.state_reason", "Always 1. The label says why the state changed last.", "reason"),

	feed.Gauge("Successes", "spillway.breaker.window_calls", "{call}", window, stats.Label{Name: "outcome", Value: "success"}),
	feed.Gauge("Failures", "spillway.breaker.window_calls", "{call}", window, stats.Label{Name: "outcome", Value: "failure"}),
	feed.Gauge("Ignored", "spillway.breaker.window_calls", "{call}", window, stats.Label{Name: "outcome", Value: "ignored"}),
	feed.Gauge("Slow", "spillway.breaker.slow_calls", "{call}", "Calls in the window that took longer than SlowCall."),
	feed.Gauge("FailureRate", "spillway.breaker.failure", "1", "Share of failures in the window."),
	feed.Gauge("SlowRate", "spillway.breaker.slow", "1", "Share of slow calls in the window, with those that still hang."),
	feed.Gauge("Hung", "spillway.breaker.hung_calls", "{call}", "Calls under way for longer than SlowCall."),
	feed.Gauge("Consecutive", "spillway.breaker.consecutive_failures", "{call}", "Failures in a row."),

	feed.Gauge("InFlight", "spillway.breaker.in_flight", "{call}", "Admitted calls that have not ended."),
	feed.Gauge("Probes", "spillway.breaker.probes", "{call}", "Probes that have not ended."),
	feed.Gauge("Share", "spillway.breaker.admitted", "1", "Share of the calls that is admitted: 1 if closed, 0 if open."),
	feed.Gauge("Reopenings", "spillway.breaker.reopenings", "{opening}", "Openings in a row, which lengthen the next open time."),
	feed.Gauge("NextProbe", "spillway.breaker.next_probe", "s", "Unix time when the open time ends. Absent unless it is open."),

	feed.Count("Refused", "spillway.breaker.refused", "{call}", "Calls refused."),
	feed.ByReason("ByReason", "spillway.breaker.refusals", "Calls refused, by reason."),
	feed.ByKey("Openings", "spillway.breaker.openings", "{opening}", "Openings, by reason.", "reason"),
	feed.Count("Stale", "spillway.breaker.stale", "{call}", "Outcomes from before a change of state."),
	feed.Count("Vetoed", "spillway.breaker.vetoed", "{opening}", "Openings that a Keyed did not allow."),
	feed.Count("Panics", "spillway.breaker.panics", "{panic}", "Panics of OnEvent."),
}

const window = "Calls in the window, by outcome."

// Metrics yields the figures of [Breaker.Stats].
func (b *Breaker) Metrics() iter.Seq[stats.Metric] { return feed.Of(b, statsRows, b.Stats) }

var throttleStatsRows = []feed.Row{
	feed.Gauge("Requests", "spillway.throttle.window_requests", "{request}", "Requests in the window, with those refused."),
	feed.Gauge("Accepts", "spillway.throttle.window_accepts", "{request}", "Requests in the window that succeeded."),
	feed.Gauge("Odds", "spillway.throttle.refusal", "1", "Probability that the next request is refused."),
	feed.Gauge("InFlight", "spillway.throttle.in_flight", "{request}", "Admitted requests that have not ended."),
	feed.Count("Refused", "spillway.throttle.refused", "{request}", "Requests refused."),
	feed.ByReason("ByReason", "spillway.throttle.refusals", "Requests refused, by reason."),
	feed.Count("Probes", "spillway.throttle.probes", "{request}", "Requests admitted because of ProbeEvery."),
	feed.Count("Recoveries", "spillway.throttle.recoveries", "{recovery}", "Recoveries by RecoverAfter."),
	feed.Count("Stale", "spillway.throttle.stale", "{request}", "Successes of requests from before a recovery."),
}

// Metrics yields the figures of [Throttle.Stats].
func (t *Throttle) Metrics() iter.Seq[stats.Metric] { return feed.Of(t, throttleStatsRows, t.Stats) }

var keyedStatsRows = []feed.Row{
	feed.Gauge("Keys", "spillway.breakers.keys", "{key}", "Keys that have a policy of their own."),
	feed.Gauge("Open", "spillway.breakers.open", "{breaker}", "Breakers of a key that outcomes have opened and not closed yet."),
	feed.ByKey("Openings", "spillway.breakers.openings", "{opening}", "Openings of breakers of a key, by reason.", "reason"),
	feed.Count("Overflowed", "spillway.breakers.overflowed", "{request}", "Requests with a key that the shared policy decided."),
	feed.Count("Evicted", "spillway.breakers.evicted", "{key}", "Idle keys forgotten."),
	feed.Count("Failed", "spillway.breakers.failed", "{call}", "Calls of New that returned no policy, or panicked."),
}

// Metrics yields the figures of [Keyed.Stats]. It yields none of a single key, since keys may come from clients.
func (r *Keyed) Metrics() iter.Seq[stats.Metric] { return feed.Of(r, keyedStatsRows, r.Stats) }

var (
	_ stats.Source = (*Breaker)(nil)
	_ stats.Source = (*Throttle)(nil)
	_ stats.Source = (*Keyed)(nil)
)
