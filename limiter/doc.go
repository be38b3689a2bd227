// Package limiter holds static limits: a rule sets in advance, in numbers, how much a caller may do.
//
//	rule := limiter.Bucket{Rate: limiter.Per(100, time.Second), Burst: 20}
//	...
//	limit, err := limiter.New(rule) // one limit for all
//	...
//	perTenant, err := limiter.NewKeyed(rule, nil) // one for each spillway.Request.Key
//	...
//	gate := spillway.New(perTenant, shed)
//	...
//	if !limit.Allow() { // or without a gate
//		return errTooFast
//	}
//
// A [Rule] is plain data. [New] makes a [Limiter] from it, which is a [spillway.Policy] and can be called directly. Use
//
//   - a [Bucket] to allow a rate, with bursts up to a size,
//   - a [Shaper] to have requests wait and pass at an even pace,
//   - a [FixedWindow] for quotas as contracts state them, such as 3 per day,
//   - a [SlidingWindow] to allow a number of requests in any minute; a [SlidingLog] does so exactly and takes more memory,
//   - a [WarmUp] to begin slowly after a pause,
//   - a [Concurrency] to bound how many requests run at once; in a [Queue], other requests wait for their turn.
//
// A [Keyed] keeps a limit for each key, and a [Registry] keeps any policy, such as a Shaper or a Queue. An [XTime] is
// the rule of a limiter of golang.org/x/time/rate that you have.
//
// # Time and cost
//
// A Policy here reads no clock unless it waits: the time is [spillway.Request.Arrived]. Methods that need the time take
// it, except Allow, Wait and Tune, which read the clock. Time never runs backwards: a time before that of an earlier
// call counts as the time of that call, so a stale clock gains no tokens.
//
// A cost of n takes n tokens at once or none. A cost that can never pass has its own error, [CostError]; a gate gets a
// rejection with the reason "cost exceeds limit". No call creates tokens: a negative cost is refused, and giving back fills up to the
// limit.
//
// # Reasons
//
// A rejection has one of these reasons, fit for a metric label:
//
//   - "rate exceeded": a bucket is empty, or a warm-up is not at full rate yet
//   - "quota used up": a window is full
//   - "limit reached": the maximum number of requests is running
//   - "queue full": the maximum number of requests is waiting
//   - "wait too long": the request would wait, or has waited, too long
//   - "deadline too near": its turn would come after the deadline of its context
//   - "ousted from queue": it lost its place to a request of higher priority
//   - "cost exceeds limit", "cost is negative"
//   - "limiter is not made": a zero value
//
// # Rules that change
//
// [Limiter.Tune] and [Keyed.Tune] replace the whole rule while requests go on, where a field that is 0 means its
// default. To change one field, take the current rule from [Limiter.Rule]. A rule of another kind or name is an error.
//
// # Refused
//
// Rates and windows set [spillway.Rejection.OverQuota], because the caller used up its quota. Their RetryAfter says
// when to try again: at most 1/16 later than needed, and never too early for a request of the same cost. [Concurrency]
// and [Queue] refuse for lack of room. It is unknown when there will be room, so RetryAfter is 0.
package limiter
