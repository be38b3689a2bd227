package cluster

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/breaker"
)

// A Mutex lets one holder of a key run at a time, in all processes that share a Redis. It is a [Semaphore] with a Limit
// of 1, and gives the same guarantees. It is made by [NewMutex]. All methods may be called concurrently. The zero Mutex
// denies everything.
type Mutex struct{ sem *Semaphore }

// semaphore returns the Semaphore of the Mutex, or the zero Semaphore.
func (m *Mutex) semaphore() *Semaphore {
	if m.sem == nil {
		return new(Semaphore)
	}
	return m.sem
}

// MutexOptions tune a [Mutex]. Client is required. The fields mean the same as in [SemaphoreOptions]; if Name is empty,
// it is "mutex".
type MutexOptions struct {
	Client     redis.UniversalClient
	Name       string
	Prefix     string
	TTL        time.Duration
	Guard      time.Duration
	Poll       time.Duration
	MaxWaiting int
	MaxWait    time.Duration
	Timeout    time.Duration
	Breaker    *breaker.Options
}

// NewMutex returns a Mutex without touching the network. The error names the invalid option. The caller closes it.
func NewMutex(o *MutexOptions) (*Mutex, error) {
	var opts MutexOptions
	if o != nil {
		opts = *o
	}
	sem, err := newSemaphore("Mutex", "mutex", &SemaphoreOptions{
		Client: opts.Client, Name: opts.Name, Prefix: opts.Prefix, Limit: 1, TTL: opts.TTL, Guard: opts.Guard, Poll: opts.Poll,
		MaxWaiting: opts.MaxWaiting, MaxWait: opts.MaxWait, Timeout: opts.Timeout, Breaker: opts.Breaker,
	})
	if err != nil {
		return nil, err
	}
	return &Mutex{sem: sem}, nil
}

// Lock waits until the key is free and returns the lock, with the errors of [Semaphore.Acquire]. The caller releases it.
func (m *Mutex) Lock(ctx context.Context, key string) (*Held, error) {
	return m.semaphore().Acquire(ctx, key)
}

// TryLock returns the lock if the key is free, with the errors of [Semaphore.TryAcquire]. The caller releases it.
func (m *Mutex) TryLock(ctx context.Context, key string) (*Held, error) {
	return m.semaphore().TryAcquire(ctx, key)
}

// Stats returns a snapshot. It does not ask Redis.
func (m *Mutex) Stats() SemaphoreStats { return m.semaphore().Stats() }

// Close releases every lock and ends the goroutines, as [Semaphore.Close] does.
func (m *Mutex) Close() error { return m.semaphore().Close() }
