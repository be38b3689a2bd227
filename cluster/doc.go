// Package cluster has the types that limits of many processes share. The limits themselves, on Redis, are in its
// subpackages. Take
//
//   - exact.Limit for exact limits across all processes; each decision costs a round trip to Redis, except known refusals,
//   - exact.Allowance for counts per day or month without a round trip: each process takes chunks of an exact.Limit,
//   - lease.Limit for decisions that never wait for Redis: each process leases a share of the rate and decides by itself,
//   - lock.Semaphore to bound how many callers hold something at once, or as a mutex.
//
// # Time
//
// Only the clock of Redis decides; scripts read it. The clocks of the processes make no difference. Every key expires
// by itself.
//
// # Without Redis
//
// No call takes longer than Timeout, with any client, and each limit has a breaker. A call whose answer is lost is not
// repeated, whatever the client's retries, so it counts at most once. When Redis does not answer, a [Fallback] decides,
// and each answer names its [Source].
//
// Each call of the client has a goroutine, at most 512 for each limit, so that the caller can leave when its time is
// up. That goroutine finishes the connection or reads the late answer, and ends with the client's own timeouts: 3 s
// with ContextTimeoutEnabled, or the ReadTimeout. The zero values of all types deny everything.
package cluster
