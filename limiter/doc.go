// Package limiter holds static limits: what a caller may do is said beforehand, in numbers.
//
//	bucket, err := limiter.NewBucket(&limiter.BucketOptions{Rate: limiter.Per(100, time.Second), Burst: 20})
//	...
//	perTenant, err := limiter.NewKeyed(&limiter.KeyedOptions{Like: bucket})
//	...
//	gate := spillway.New(perTenant, shed) // Request.Key says which tenant
//	...
//	if !bucket.Allow() { // or without a gate
//		return errTooFast
//	}
//
// Each is a [spillway.Policy], and can be called directly. Take
//
//   - a [Bucket] to allow a rate, with bursts up to a size; a [Policer] is the same in the words of a leaky bucket,
//   - a [Shaper] to have requests wait and pass at an even pace,
//   - a [FixedWindow] for quotas as contracts state them, such as 3 per day,
//   - a [SlidingWindow] to allow so many in any minute; a [SlidingLog] does so exactly and takes more memory,
//   - a [WarmUp] to begin slowly after a pause,
//   - a [Concurrency] to bound how many run at once; a [Queue] has others wait for their turn,
//   - a [Keyed] to keep one of these for each key, a [Registry] to keep a limit with a queue for each key,
//   - an [XTime] to put a limiter of golang.org/x/time/rate that you have behind a gate.
//
// # Time and cost
//
// A Policy here reads no clock unless it waits: the time is [spillway.Request.Arrived]. Methods that need the time have a form
// that takes it, such as [Bucket.PeekAt] for [Bucket.Peek]. Time never runs backwards: a time before that of an earlier call
// counts as that time, so a stale clock gains nothing. A cost of n takes n tokens at once or none. One that can never pass is
// an error of its own, [CostError], or for a gate a rejection with [ReasonTooLarge]. Nothing mints tokens: a negative cost is
// refused, and giving back fills up to what a new limit has.
//
// # Refused
//
// Rates and windows set [spillway.Rejection.OverQuota], since the caller used up its own share, and say in RetryAfter
// when to try again: at most 1/16 later than needed, and never too early for a request of the same cost. [Concurrency]
// and [Queue] refuse for lack of room. They cannot know when there will be room again.
package limiter
