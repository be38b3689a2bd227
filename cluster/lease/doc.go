// Package lease limits a rate for all processes together. Each process leases a part of the rate from Redis and decides
// locally.
//
//	limit, err := lease.New(&lease.Options{
//		Client: client, // of github.com/redis/go-redis/v9
//		Rule:   limiter.Bucket{Rate: limiter.Per(20_000, time.Second)},
//		Nodes:  3, // until Redis has reported how many there are
//	})
//	...
//	defer limit.Close() // the others get its part at once
//	gate := spillway.New(limit)
package lease
