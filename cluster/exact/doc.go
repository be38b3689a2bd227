// Package exact has limits that apply exactly to all processes together, on Redis.
//
//	limit, err := exact.New(&exact.Options{
//		Client: client, // of github.com/redis/go-redis/v9
//		Rules:  []limiter.Rule{limiter.Bucket{Rate: limiter.Per(100, time.Second)}},
//		Nodes:  3, // so without Redis each process allows a third
//	})
//	...
//	gate := spillway.New(limit) // Request.Key says whose limit it is
//	...
//	r, err := limit.Take(ctx, "tenant 7", 1) // or without a gate
//
// A [Limit] asks Redis for each decision. An [Allowance] takes chunks of a Limit and spends them locally.
package exact
