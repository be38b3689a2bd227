// Package cluster holds limits that many processes share, on Redis.
//
//	limit, err := cluster.NewLimit(&cluster.LimitOptions{
//		Client: client, // of github.com/redis/go-redis/v9
//		Rules:  []limiter.Rule{limiter.Bucket{Rate: limiter.Per(100, time.Second)}},
//		Nodes:  3, // so without Redis each process allows a third
//	})
//	...
//	gate := spillway.New(limit) // Request.Key says whose limit it is
//	...
//	r, err := limit.Take(ctx, "tenant 7", 1) // or without a gate
//
// Take
//
//   - a [Limit] for exact limits across all processes; each decision costs a round trip to Redis, except known refusals,
//   - a [Quota] for decisions that never wait for Redis: each process leases a share of the rate and decides by itself,
//   - an [Allowance] for counts per day or month without a round trip: each process takes chunks of a Limit,
//   - a [Semaphore] to bound how many callers hold something at once, or as a mutex.
//
// # Time
//
// Only the clock of Redis decides; scripts read it. The clocks of the processes make no difference. Every key expires
// by itself.
//
// # Without Redis
//
// No call takes longer than Timeout, with any client, and each type has a breaker. A call whose answer is lost is not
// repeated, whatever the client's retries, so it counts at most once. When Redis does not answer, [Fallback] decides, and
// each answer names its [Source].
//
// Each call of the client has a goroutine, at most 512 for each limit, so that the caller can leave when its time is
// up. That goroutine finishes the connection or reads the late answer, and ends with the client's own timeouts: 3 s
// with ContextTimeoutEnabled, or the ReadTimeout. The zero values of all types deny everything.
package cluster
