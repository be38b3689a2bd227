package shedder

import (
	"iter"

	"github.com/spillway-go/spillway/internal/feed"
	"github.com/spillway-go/spillway/stats"
)

var statsRows = []feed.Row{
	feed.Gauge("Time", "spillway.shedder.tick_time", "s", "Unix time of the last tick."),

	feed.Gauge("CPU", "spillway.shedder.cpu", "1", "CPU usage as a share of what the process may use."),
	feed.Gauge("CPUSmooth", "spillway.shedder.cpu_smoothed", "1", "CPU usage, smoothed."),
	feed.Up("CPUErr", "spillway.shedder.sensor_up", sensorUp, stats.Label{Name: "sensor", Value: "cpu"}),
	feed.Info("CPUSource", "spillway.shedder.cpu_source", "Always 1. The label says where the CPU readings come from.", "source"),
	feed.Gauge("QueueDelay", "spillway.shedder.queue_delay", "s", "Time that goroutines wait for a processor."),
	feed.Up("SchedErr", "spillway.shedder.sensor_up", sensorUp, stats.Label{Name: "sensor", Value: "sched"}),
	feed.Gauge("QuotaPause", "spillway.shedder.quota_pause", "s", "Time that a CPU quota stops the process in each of its periods."),

	feed.Gauge("Overloaded", "spillway.shedder.overloaded", "", "1 while the limit for a short CPU is active."),
	feed.State("Reason", "spillway.shedder.overload_reason", "1 for the present reason why the shedder refuses.", "reason", reasonNames...),
	feed.Info("Signal", "spillway.shedder.signal", "Always 1. The label names the first signal that is at its threshold.", "signal"),
	feed.Up("SignalErr", "spillway.shedder.sensor_up", sensorUp, stats.Label{Name: "sensor", Value: "signals"}),
	feed.Gauge("Since", "spillway.shedder.overloaded_since", "s", "Unix time of the last change between calm and overloaded."),

	feed.Gauge("Limit", "spillway.shedder.limit", "{request}", "Greatest number of requests in flight. Absent while there is none."),
	feed.Gauge("Drop", "spillway.shedder.drop", "1", "Share of requests refused at random because they wait for a processor."),
	feed.Gauge("FairShare", "spillway.shedder.fair_share", "{request}/s",
		"Rate of a key above which it is refused for the sake of other keys. Absent while none is."),
	feed.Gauge("RouteShare", "spillway.shedder.route_share", "{request}",
		"Busy time of a route per second, in requests at work, above which it is refused for the sake of other routes. Absent while none is."),
	feed.Gauge("Routes", "spillway.shedder.routes", "{route}", "Routes that have a share of their own."),
	feed.Gauge("InFlight", "spillway.shedder.in_flight", "{request}", "Admitted requests that have not ended."),
	feed.Gauge("MaxPass", "spillway.shedder.max_pass", "{request}/s", "Greatest rate of answers over one latency within the window."),
	feed.Gauge("MinRT", "spillway.shedder.min_rt", "s", "Latency while the service is calm. 0 if it is not known."),

	feed.Gauge("Demand", "spillway.demand", "1", "Offered load as a multiple of what the process can carry."),

	feed.Gauge("HoldBackAt", "spillway.shedder.hold_back_at", "", "Priority of which HoldBack is a share. Clients send nothing of lower ones."),
	feed.Gauge("HoldBack", "spillway.shedder.hold_back", "1", "Share of requests that clients should not send. 0 if they may send everything."),

	feed.Gauge("Leak", "spillway.shedder.leak", "1", "Share of refusals that is admitted because of MaxShed."),
	feed.Count("Leaked", "spillway.shedder.leaked", "{request}", "Requests admitted because of MaxShed."),
	feed.Count("Probes", "spillway.shedder.probes", "{request}", "Requests admitted beyond the limit because none had ended."),

	feed.Gauge("Waiting", "spillway.shedder.waiting", "{request}", "Requests that wait for room."),
	feed.Count("Waited", "spillway.shedder.waited", "{request}", "Admitted requests that had to wait."),
	feed.Count("Cancelled", "spillway.shedder.cancelled", "{request}", "Requests that gave up when they had to wait."),
	feed.Histogram("Waits", "spillway.shedder.wait", wait, stats.Label{Name: "result", Value: "admitted"}),
	feed.Histogram("RefusedAfter", "spillway.shedder.wait", wait, stats.Label{Name: "result", Value: "refused"}),

	feed.Count("Admitted", "spillway.shedder.requests", "{request}", requests, stats.Label{Name: "result", Value: "admitted"}),
	feed.Count("Refused", "spillway.shedder.requests", "{request}", requests, stats.Label{Name: "result", Value: "refused"}),
	feed.ByReason("ByReason", "spillway.shedder.refusals", "Requests refused, by reason."),
	feed.Count("AdmittedSheddable", "spillway.shedder.priority_admissions", "{request}", admitted, stats.Label{Name: "priority", Value: "sheddable"}),
	feed.Count("AdmittedNormal", "spillway.shedder.priority_admissions", "{request}", admitted, stats.Label{Name: "priority", Value: "normal"}),
	feed.Count("AdmittedCritical", "spillway.shedder.priority_admissions", "{request}", admitted, stats.Label{Name: "priority", Value: "critical"}),
	feed.Count("RefusedSheddable", "spillway.shedder.priority_refusals", "{request}", byPriority, stats.Label{Name: "priority", Value: "sheddable"}),
	feed.Count("RefusedNormal", "spillway.shedder.priority_refusals", "{request}", byPriority, stats.Label{Name: "priority", Value: "normal"}),
	feed.Count("RefusedCritical", "spillway.shedder.priority_refusals", "{request}", byPriority, stats.Label{Name: "priority", Value: "critical"}),
}

const (
	wait       = "Time that requests waited, of those that had to."
	sensorUp   = "1 if the sensor can be read."
	requests   = "Requests by what the shedder decided. Requests that a later policy refused do not count."
	admitted   = "Requests admitted, by priority: below Normal, Normal, above Normal."
	byPriority = "Requests refused, by priority: below Normal, Normal, above Normal."
)

// Metrics yields the figures of [Shedder.Stats]. Those of the queue are left out without [Options.MaxQueue].
func (s *Shedder) Metrics() iter.Seq[stats.Metric] {
	all := feed.Of(s, statsRows, s.Stats)
	if s.Queues() {
		return all
	}
	return func(yield func(stats.Metric) bool) {
		for m := range all {
			if !ofQueue(m.Name) && !yield(m) {
				return
			}
		}
	}
}

// ofQueue reports whether a metric is a figure of the queue.
func ofQueue(metric string) bool {
	switch metric {
	case "spillway.shedder.waiting", "spillway.shedder.waited", "spillway.shedder.cancelled", "spillway.shedder.wait":
		return true
	}
	return false
}

var _ stats.Source = (*Shedder)(nil)
