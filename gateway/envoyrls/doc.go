// Package envoyrls is a rate limit service for Envoy: it answers envoy.service.ratelimit.v3.RateLimitService with limits that
// all its processes share on Redis.
//
//	service, err := envoyrls.New(&envoyrls.Options{
//		Client: client, // of github.com/redis/go-redis/v9
//		Config: map[string]rules.Source{"shop.yaml": rules.File("shop.yaml")},
//		Nodes:  2, // so without Redis each process allows a half
//	})
//	...
//	defer service.Close()
//	ratelimitv3.RegisterRateLimitServiceServer(grpcServer, service)
//
// The command cmd/spillway-rls is a server with this service, health checks and metrics.
//
// # Configuration
//
// The file is that of Envoy's reference service (github.com/envoyproxy/ratelimit), one file for each domain:
//
//	domain: shop
//	descriptors:
//	  - key: remote_address          # every address has its own limit
//	    rate_limit: {unit: second, requests_per_unit: 10}
//	  - key: remote_address          # but not this one
//	    value: 192.0.2.1
//	    rate_limit: {unlimited: true}
//	  - key: path
//	    value: /api/*                # "*" at the end stands for any text; each path has its own limit
//	    shadow_mode: true            # is counted, and refuses nothing
//	    descriptors:
//	      - key: method
//	        value: POST
//	        rate_limit: {name: writes, unit: minute, requests_per_unit: 100}
//
// A descriptor of a request finds its rule from entry to entry: an equal value first, then the first value with "*" that fits, then
// the key without a value. A rule applies if the last entry ends at it. A descriptor without a rule passes, and so does one of an
// unknown domain. These fields are known: domain, descriptors, key, value, rate_limit, unit, requests_per_unit, unlimited, name,
// replaces, shadow_mode and share_threshold. The error of any other field, and of a value that cannot be right, has the file, the
// line and the value.
//
// # Decisions
//
// A request passes if all its descriptors do. Then it takes the tokens of all of them in one round trip and one atomic step; a
// refused request takes none. So a client that is refused by one limit does not use up the others, which it does with the reference
// service. A descriptor with hits_addend 0 takes nothing and passes if one token is left.
//
// Limits are windows ([limiter.FixedWindow]): minutes, hours, days and months of the calendar in UTC; a second, a week and a year of
// 365 days begin with the first request. Rules from [Options.LeaseFrom] on, per second or per minute, are decided without Redis, by a
// [lease.Limit].
//
// A rule with shadow_mode is asked when all others have admitted the request. Envoy may send a limit of its own for a descriptor
// (RateLimitOverride). It counts apart from the rules, and apart for each such limit.
//
// # Reload
//
// The files are read once a second. If one of them is missing or wrong, the last good files stay in force, together. There is one
// line in the log, and [Stats] and the metrics count it. Used tokens stay used when a limit changes.
//
// # Without Redis
//
// [Options.Fallback] decides. [cluster.Divide] and [cluster.AllowAll] answer Envoy; with [cluster.RefuseAll] the call fails with
// UNAVAILABLE, and failure_mode_deny of Envoy's filter decides.
package envoyrls
