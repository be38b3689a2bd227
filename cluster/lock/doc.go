// Package lock has a semaphore for all processes together, on Redis. With its default Limit it is a mutex.
//
//	refill, err := lock.New(&lock.Options{Client: client, Name: "refill"}) // of github.com/redis/go-redis/v9
//	...
//	held, err := refill.Acquire(ctx, "article 7")
//	if err != nil {
//		return err
//	}
//	defer held.Release()
//	work(held.Context()) // which ends when the lease does
package lock
