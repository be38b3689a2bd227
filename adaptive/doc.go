// Package adaptive limits the requests in flight. It learns the limit from their latency.
//
//	limit, err := adaptive.New(nil) // Netflix's Gradient2, from 1 to 1000 requests in flight
//	if err != nil {
//		return err
//	}
//	gate := spillway.New(limit)
//	err = spillway.Do(ctx, gate, spillway.Request{}, callBackend)
//
// A [Limit] is a [spillway.Policy] that needs no sensor. Use it where the CPU cannot be read or is never the
// bottleneck: in a proxy, or in front of one dependency. Where package shedder can be used, it works better, because
// latency alone cannot tell a slow dependency from an overload.
//
// An [Estimator] moves the limit, one sample at a time. There are three, and you can bring your own:
//
//   - [Gradient2] compares the latency with its long mean.
//   - [Vegas] estimates the queue from the least latency.
//   - [AIMD] adds one after a success, and subtracts a tenth after a late or dropped request.
//
// # A baseline that stays healthy
//
// Gradient2 and Vegas compare each latency with a baseline: the latency that counts as healthy. Both learn it from the
// traffic that they limit, so during a long overload they learn that slow is normal, and the limit opens when it should
// hold. A Limit therefore bounds the baseline by one rule: it may fall at any time, but it may rise by at most
// [Options.MaxRise], a factor of 2, per hour. Only minutes with traffic count towards the hour, each with the mean latency of
// its successes. So a quiet night or a few fast requests do not move the bound.
//
// The price: requests may become slower for good by more than MaxRise, and by more than the estimator tolerates. Then the limit
// stays tight for an hour per further factor of MaxRise. [Limit.Tune] with a larger MaxRise loosens it at once. If you know the
// longest healthy latency, set [Options.MaxBaseline]; that bound holds from the start.
package adaptive
