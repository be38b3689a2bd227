// Package caddy is a handler for the Caddy web server, http.handlers.spillway, that keeps the service behind it working at
// full capacity under overload. It adds the shedder, limits per client and a breaker to any site.
//
//	:8080 {
//		spillway {
//			rate per_client 100/s {
//				key {client_ip}
//			}
//		}
//		reverse_proxy 127.0.0.1:9000
//	}
//
// A request that is refused gets 503, or 429 if its client used up its share, with a Retry-After. It is not logged as an error and
// reaches no later handler. The access log can show {vars.spillway_policy} and {vars.spillway_reason}.
//
// # Caddyfile
//
// All options may be left out. "spillway" alone is a shedder with the defaults. A duration is a text such as 250ms, and a rate is a
// text such as 100/s or 5/10s. A fraction is a number from 0 to 1.
//
//	spillway [<matcher>] {
//		name <text>                    # for metrics; limits of a named handler survive a reload
//		shedder [off] {
//			cpu process|machine|off    # whose CPU counts; default process
//			cpu_threshold <fraction>   # default 0.9
//			slo <duration>             # longest latency at the 99th percentile; default none
//			min_limit <n>              # requests in flight below which nothing is refused
//			max_limit <n>
//			max_shed <fraction>        # greatest share of requests that is refused; default no bound
//			key <placeholder>          # share fairly among the values under overload
//		}
//		rate <name> <rate> {
//			key <placeholder>          # a limit for each value; without it, one for all
//			burst <n>                  # default the tokens of the rate
//			max_keys <n>               # default 2^20
//		}
//		concurrency <name> <n> {       # requests in flight
//			key <placeholder>
//			max_keys <n>
//		}
//		breaker {                      # off unless it is here
//			failure_rate <fraction>    # default 0.5
//			consecutive <n>            # default 10
//			min_calls <n>              # default 20
//			window <duration>          # default 10s
//			open_for <duration>        # default 5s
//			slow_call <duration>       # default none
//		}
//		priority <placeholder>         # sheddable, normal or critical; anything else is normal
//		rate_limit_headers             # RateLimit and RateLimit-Policy on each answer
//		dry_run                        # count what would be refused, and refuse nothing
//	}
//
// Policies are asked in this order: rates, concurrency, shedder, breaker. There are at most eight. By default, the handler runs
// after "rewrite" and "uri" and before authentication, which is expensive. Keep health checks out of it with a matcher.
//
// WebSockets and event streams are admitted like other requests. Then they leave the gate, and do not count as in flight.
//
// # What the shedder knows
//
// In front of a backend on another machine, the CPU of Caddy says little. The shedder then learns from answers, latency and requests
// in flight, so it finds full pools and slow backends. For a backend on the same machine, such as php-fpm, use "cpu machine".
//
// # Reload
//
// Handlers with the same name and the same settings share their state, also across reloads: used tokens stay used, and a breaker stays
// open. A handler without a name starts afresh. In one configuration, a name stands for one set of settings.
package caddy
