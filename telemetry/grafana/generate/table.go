package main

// A query is one expression of a panel.
type query struct {
	expr, legend string // $sel in expr stands for the labels that the variables of the board select
}

// A panel is one chart of the board.
type panel struct {
	title, help, unit string
	queries           []query
}

// A row is a question and the panels that answer it.
type row struct {
	question string
	panels   []panel
}

var rows = []row{
	{"Is it refusing?", []panel{
		{"Requests", "Requests by what the gate decided.", "reqps", []query{
			{`sum by (name, result) (rate(spillway_gate_requests_total{$sel}[$__rate_interval]))`, "{{name}} {{result}}"},
		}},
		{"Refused share", "Refused requests as a share of all.", "percentunit", []query{
			{`sum by (name) (rate(spillway_gate_requests_total{$sel,result="refused"}[$__rate_interval]))` +
				` / sum by (name) (rate(spillway_gate_requests_total{$sel}[$__rate_interval]))`, "{{name}}"},
		}},
		{"Demand", "Offered load as a multiple of what the processes can carry. Scale out above 1.", "none", []query{
			{`max by (name, policy) (spillway_demand_ratio{$sel})`, "{{name}} {{policy}}"},
		}},
		{"In flight", "Admitted requests that have not ended.", "none", []query{
			{`sum by (name) (spillway_gate_in_flight{$sel})`, "{{name}}"},
		}},
		{"Outcomes", "How admitted requests ended.", "reqps", []query{
			{`sum by (name, outcome) (rate(spillway_gate_outcomes_total{$sel}[$__rate_interval]))`, "{{name}} {{outcome}}"},
		}},
		{"Waits", "99th percentile of the waits of requests that had to wait, by what became of them.", "s", []query{
			{`histogram_quantile(0.99, sum by (policy, result, le) (rate(spillway_limiter_wait_seconds_bucket{$sel}[$__rate_interval])))`,
				"{{policy}} {{result}}"},
		}},
	}},
	{"Why?", []panel{
		{"Refusals by reason", "Refusals by the policy that refused, and its reason.", "reqps", []query{
			{`sum by (policy, reason) (rate(spillway_gate_refusals_total{$sel}[$__rate_interval]))`, "{{policy}}: {{reason}}"},
		}},
		{"Overload", "1 for the present reason why a shedder refuses.", "none", []query{
			{`max by (policy, reason) (spillway_shedder_overload_reason{$sel,reason!="calm"})`, "{{policy}}: {{reason}}"},
		}},
		{"CPU", "CPU usage as a share of what the process may use, raw and smoothed.", "percentunit", []query{
			{`max by (policy) (spillway_shedder_cpu_ratio{$sel})`, "{{policy}}"},
			{`max by (policy) (spillway_shedder_cpu_smoothed_ratio{$sel})`, "{{policy}} smoothed"},
		}},
		{"Queue delay", "Time that goroutines wait for a processor.", "s", []query{
			{`max by (policy) (spillway_shedder_queue_delay_seconds{$sel})`, "{{policy}}"},
		}},
		{"Limit and in flight", "Requests in flight against their limit. The limit is absent while there is none.", "none", []query{
			{`sum by (policy) (spillway_shedder_limit{$sel})`, "{{policy}} limit"},
			{`sum by (policy) (spillway_shedder_in_flight{$sel})`, "{{policy}} in flight"},
		}},
		{"Latency while calm", "Latency that a shedder learnt while the service was calm.", "s", []query{
			{`max by (policy) (spillway_shedder_min_rt_seconds{$sel})`, "{{policy}}"},
		}},
	}},
	{"Whom?", []panel{
		{"Refusals by priority", "Refusals of shedders, by the priority of the request.", "reqps", []query{
			{`sum by (policy, priority) (rate(spillway_shedder_priority_refusals_total{$sel}[$__rate_interval]))`, "{{policy}} {{priority}}"},
		}},
		{"Refusals of limits", "Requests that static limits refused.", "reqps", []query{
			{`sum by (policy, reason) (rate(spillway_limiter_refusals_total{$sel}[$__rate_interval]))`, "{{policy}}: {{reason}}"},
		}},
		{"Keys", "Keys that have a limit of their own.", "none", []query{
			{`sum by (policy) (spillway_limiter_keys{$sel})`, "{{policy}}"},
		}},
	}},
	{"What downstream?", []panel{
		{"Breakers", "Number of breakers by state.", "none", []query{
			{`sum by (policy, state) (spillway_breaker_state{$sel})`, "{{policy}} {{state}}"},
		}},
		{"Failures", "Share of failures in the window of a breaker.", "percentunit", []query{
			{`max by (policy) (spillway_breaker_failure_ratio{$sel})`, "{{policy}}"},
		}},
		{"Openings", "Openings of breakers by reason.", "none", []query{
			{`sum by (policy, reason) (increase(spillway_breaker_openings_total{$sel}[$__rate_interval]))`, "{{policy}}: {{reason}}"},
		}},
	}},
	{"What in the cluster?", []panel{
		{"Who decides", "Decisions about requests by who took them. Anything but redis and memory means that Redis did not answer.", "reqps", []query{
			{`sum by (policy, source, result) (rate(spillway_exact_decisions_total{$sel}[$__rate_interval]))`, "{{policy}} {{source}} {{result}}"},
		}},
		{"Redis does not answer", "Calls that Redis did not answer.", "cps", []query{
			{`sum by (policy) (rate(spillway_exact_unanswered_total{$sel}[$__rate_interval]))`, "{{policy}} exact"},
			{`sum by (policy) (rate(spillway_lease_failures_total{$sel}[$__rate_interval]))`, "{{policy}} lease"},
		}},
		{"Leased keys", "Keys of leases, and those of them that are decided locally.", "none", []query{
			{`sum by (policy) (spillway_lease_keys{$sel})`, "{{policy}} keys"},
			{`sum by (policy) (spillway_lease_leased{$sel})`, "{{policy}} leased"},
		}},
	}},
}

// An alert is an alerting rule, with series for which it fires and for which it stays silent.
type alert struct {
	name, severity, expr, wait string
	summary                    string
	todo                       string
	fires, silent              []series
	at                         string   // when the two are tested
	labels                     []string // that the alert has for fires, as name="value" pairs
}

// A series is one input of a test of an alert, with a value a minute.
type series struct{ name, values string }

const demandRule = "job:spillway_demand:ratio"

// demandExpr counts a shedder that has not ticked for half a minute as idle.
const demandExpr = `avg by (job) (max by (job, instance) (spillway_demand_ratio{shadow=""}` +
	` * on (job, instance, name, policy) (time() - spillway_shedder_tick_time_seconds{shadow=""} < bool 30)))`

var alerts = []alert{
	{
		"SpillwayCriticalRefused", "page",
		`sum by (job, name, policy) (rate(spillway_shedder_priority_refusals_total{priority="critical",shadow=""}[2m])) > 0`, "2m",
		"Critical requests are refused.", "Less important requests are refused already. Add capacity, or find what has become slow.",
		[]series{{`spillway_shedder_priority_refusals_total{job="j",name="api",policy="p",priority="critical"}`, "0+60x10"}},
		[]series{
			{`spillway_shedder_priority_refusals_total{job="j",name="api",policy="p",priority="critical"}`, "7x10"},
			{`spillway_shedder_priority_refusals_total{job="j",name="api",policy="p",priority="normal"}`, "0+60x10"},
			{`spillway_shedder_priority_refusals_total{job="j",name="api",policy="p",priority="critical",shadow="0"}`, "0+60x10"},
		}, "6m",
		[]string{"job", "j", "name", "api", "policy", "p"},
	},
	{
		"SpillwayRefusing", "warning",
		refusedShare + ` > 0.01`, "5m",
		"More than 1 % of the requests are refused.", "The panel Refusals by reason names the policy and the reason.",
		[]series{{admitted, "0+98x20"}, {refused, "0+2x20"}},
		[]series{{admitted, "0+998x20"}, {refused, "0+2x20"}}, "12m",
		[]string{"job", "j", "name", "api"},
	},
	{
		"SpillwayRefusingMuch", "page",
		refusedShare + ` > 0.05`, "5m",
		"More than 5 % of the requests are refused.", "Compare the demand with the number of processes. Look for clients that retry at once.",
		[]series{{admitted, "0+90x20"}, {refused, "0+10x20"}},
		[]series{{admitted, "0+98x20"}, {refused, "0+2x20"}}, "12m",
		[]string{"job", "j", "name", "api"},
	},
	{
		"SpillwaySensorDown", "warning",
		`spillway_shedder_sensor_up{shadow=""} == 0`, "5m",
		"A sensor of a shedder cannot be read.", "The shedder goes on without it. CPUErr, SchedErr or SignalErr of its Stats says why.",
		[]series{{`spillway_shedder_sensor_up{job="j",policy="p",sensor="cpu"}`, "0x20"}},
		[]series{{`spillway_shedder_sensor_up{job="j",policy="p",sensor="cpu"}`, "0 0 0 1x20"}}, "8m",
		[]string{"job", "j", "policy", "p", "sensor", "cpu"},
	},
	{
		"SpillwayBreakerOpen", "warning",
		`spillway_breaker_state{state="open",shadow=""} == 1`, "1m",
		"A breaker is open.", "The dependency behind it fails or is slow. The panel Openings says which.",
		[]series{{`spillway_breaker_state{job="j",policy="db",state="open"}`, "1x10"}},
		[]series{
			{`spillway_breaker_state{job="j",policy="db",state="open"}`, "0x10"},
			{`spillway_breaker_state{job="j",policy="db",state="closed"}`, "1x10"},
		}, "3m",
		[]string{"job", "j", "policy", "db", "state", "open"},
	},
	{
		"SpillwayBreakerForced", "warning",
		`spillway_breaker_mode{mode=~"forced-.*",shadow=""} == 1`, "1d",
		"A breaker has been forced open or closed for a day.", "Set its mode back to auto, unless it is still meant.",
		[]series{{`spillway_breaker_mode{job="j",policy="db",mode="forced-open"}`, "1x1500"}},
		[]series{{`spillway_breaker_mode{job="j",policy="db",mode="forced-open"}`, "1x600 stale _x899"}}, "1d1m",
		[]string{"job", "j", "policy", "db", "mode", "forced-open"},
	},
	{
		"SpillwayRedisLost", "warning",
		`sum by (job, policy) (rate({__name__=~"spillway_(exact|lock)_unanswered_total|spillway_lease_failures_total"}[5m])) > 0`, "5m",
		"Redis does not answer a cluster limit.", "Each process limits by its fallback meanwhile. Look at Redis and the network.",
		[]series{{`spillway_exact_unanswered_total{job="j",policy="q"}`, "0+5x20"}},
		[]series{{`spillway_exact_unanswered_total{job="j",policy="q"}`, "9x20"}}, "12m",
		[]string{"job", "j", "policy", "q"},
	},
	{
		"SpillwayFailOpen", "page",
		`sum by (job, policy) (rate(spillway_exact_decisions_total{source="nobody",result="admitted"}[5m])` +
			` or rate(spillway_lock_fallbacks_total[5m])) > 0`, "1m",
		"Requests pass a cluster limit that nobody checks.", "Redis does not answer, and the fallback admits everything. Look at Redis.",
		[]series{{`spillway_exact_decisions_total{job="j",policy="q",source="nobody",result="admitted"}`, "0+5x20"}},
		[]series{
			{`spillway_exact_decisions_total{job="j",policy="q",source="nobody",result="refused"}`, "0+5x20"},
			{`spillway_exact_decisions_total{job="j",policy="q",source="redis",result="admitted"}`, "0+5x20"},
		}, "8m",
		[]string{"job", "j", "policy", "q"},
	},
	{
		"SpillwayDemand", "warning",
		demandRule + ` > 1`, "10m",
		"More is asked of the processes than they can carry.", "Add processes: their number times the demand is enough for all requests.",
		[]series{{demandOf, "2x30"}, {tickOf, "0+60x30"}},
		[]series{{demandOf, "2x30"}, {tickOf, "0x30"}}, "15m", // no request for half a minute: the demand is of the past
		[]string{"job", "j"},
	},
	{
		"SpillwayRulesStale", "warning",
		`spillway_rules_age_seconds > 300`, "5m",
		"A process has not seen valid rules for ten minutes.", "Its last good numbers hold. The log and Err of the Stats say why.",
		[]series{{`spillway_rules_age_seconds{job="j",name="rules"}`, "0+60x20"}},
		[]series{{`spillway_rules_age_seconds{job="j",name="rules"}`, "0+60x6 1x20"}}, "12m",
		[]string{"job", "j", "name", "rules"},
	},
	{
		"SpillwayRulesPinned", "warning",
		`spillway_rules_pinned == 1`, "1d",
		"Rules have been pinned to a version for a day.", "New documents wait. Call Unpin, unless it is still meant.",
		[]series{{`spillway_rules_pinned{job="j",name="rules"}`, "1x1500"}},
		[]series{{`spillway_rules_pinned{job="j",name="rules"}`, "1x600 0x899"}}, "1d1m",
		[]string{"job", "j", "name", "rules"},
	},
	{
		"SpillwayLeak", "warning",
		`sum by (job, name) (increase({__name__=~"spillway_(http|grpc)_client_leaked_total"}[10m])) > 0`, "0m",
		"A client does not close responses or streams.", "Close every response body, and read every stream to its end: each leak holds a place.",
		[]series{{`spillway_http_client_leaked_total{job="j",name="db"}`, "0+1x20"}},
		[]series{{`spillway_http_client_leaked_total{job="j",name="db"}`, "3x20"}}, "10m",
		[]string{"job", "j", "name", "db"},
	},
}

const (
	refusedShare = `sum by (job, name) (rate(spillway_gate_requests_total{result="refused"}[5m]))` +
		` / sum by (job, name) (rate(spillway_gate_requests_total[5m]))`
	admitted = `spillway_gate_requests_total{job="j",name="api",result="admitted"}`
	refused  = `spillway_gate_requests_total{job="j",name="api",result="refused"}`
	demandOf = `spillway_demand_ratio{job="j",instance="a",name="api",policy="p"}`
	tickOf   = `spillway_shedder_tick_time_seconds{job="j",instance="a",name="api",policy="p"}`
)
