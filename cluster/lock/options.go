package lock

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
)

// Bounds of the options.
const (
	minTTL, maxTTL = 50 * time.Millisecond, time.Hour
	maxPoll        = 10 * time.Second
	maxHolders     = 1 << 20
	maxNodes       = 1 << 16
)

// Options tune a [Semaphore]. Client is required. Processes that share a semaphore must use the
// same Name and should use the same options.
type Options struct {
	// Client connects to Redis 6.2 or later. The caller closes it, after the Semaphore.
	Client redis.UniversalClient
	// Name identifies the semaphore: it is part of the keys, and the name of the policy in rejections. If Name is
	// empty, it is "semaphore".
	Name string
	// Prefix begins the name of every key and channel in Redis. It may not contain braces. If Prefix is empty, it is
	// "spillway".
	Prefix string `tune:"-"`
	// Limit is how many may hold a permit of the same key at once, 1..1048576. Each process applies its own: while they
	// differ, the greatest decides. If Limit is 0, it is 1: the Semaphore is a mutex.
	Limit int
	// TTL is how long a lease lasts without renewal, and so how long a permit is unavailable after its holder has died:
	// 50ms..1h. If TTL is 0, it is 10 s.
	TTL time.Duration `tune:"-"`
	// Guard is how long before the end of a lease its context ends, so that the holder can stop: at least TTL/50, which
	// covers clocks that run at different speeds, and at most TTL/2. If Guard is 0, it is TTL/10.
	Guard time.Duration `tune:"-"`
	// Poll is how often a waiting caller asks if no message wakes it, and how the others know that it still waits:
	// 1ms..10s. Far back in the queue it asks up to 16 times less often. If Poll is 0, it is TTL/20 within 20ms..500ms.
	Poll time.Duration `tune:"-"`
	// MaxQueue is how many callers may wait for the same key, in all processes together. If MaxQueue is 0, it is
	// 10000; if it is negative, no caller waits.
	MaxQueue int
	// MaxWait is the longest wait of Acquire, whatever the deadline of its context. If MaxWait is 0, Acquire waits
	// until its context ends.
	MaxWait time.Duration
	// Fallback decides in [Semaphore.Admit] while Redis does not answer: [cluster.AllowAll] admits requests, [cluster.Divide] admits them
	// while this process runs fewer than 1/Nodes of Limit for the key, at least one, and [cluster.RefuseAll] refuses them with "redis
	// unavailable". If Fallback is 0, it is RefuseAll. Acquire and TryAcquire return the error instead.
	Fallback cluster.Fallback
	// Nodes is the number of processes that divide the limit when they [cluster.Divide] it, at most 65536.
	Nodes int
	// Timeout bounds each call of Redis that a caller waits for, 1ms..1m. If Timeout is 0, it is 100 ms.
	// Renewals, for which no caller waits, may take TTL/6 and at most 2s if that is longer.
	Timeout time.Duration `tune:"-"`
	// Breaker blocks calls to a Redis that does not answer. If Breaker is nil, it opens after 5 failures in a row, at
	// first for at most TTL/24 and at most 250ms, later for up to eight times that. Renewals have a separate breaker
	// with the same options.
	Breaker *breaker.Options
}

func (o *Options) fill() {
	o.Name, o.Prefix = cmp.Or(o.Name, "semaphore"), cmp.Or(o.Prefix, "spillway")
	o.Limit = cmp.Or(o.Limit, 1)
	o.TTL = cmp.Or(o.TTL, 10*time.Second)
	o.Guard = cmp.Or(o.Guard, o.TTL/10)
	o.Poll = cmp.Or(o.Poll, min(max(o.TTL/20, 20*time.Millisecond), 500*time.Millisecond))
	o.MaxQueue = cmp.Or(o.MaxQueue, 10000)
	o.Fallback = cmp.Or(o.Fallback, cluster.RefuseAll)
	if o.Breaker == nil && o.TTL > 0 {
		openFor := min(o.TTL/24, 250*time.Millisecond)
		o.Breaker = &breaker.Options{Consecutive: 5, OpenFor: openFor, MaxOpen: 8 * openFor, Probes: 1}
	}
}

func (o *Options) validate() error {
	switch {
	case o.Limit < 1 || o.Limit > maxHolders:
		return fmt.Errorf("lock: Limit must be in 1..%d, got %d", maxHolders, o.Limit)
	case o.TTL < minTTL || o.TTL > maxTTL:
		return fmt.Errorf("lock: TTL must be in %v..%v, got %v", minTTL, maxTTL, o.TTL)
	case o.Guard < o.TTL/50 || o.Guard > o.TTL/2:
		return fmt.Errorf("lock: Guard must be in %v..%v, TTL/50 to TTL/2, got %v", o.TTL/50, o.TTL/2, o.Guard)
	case o.Poll < time.Millisecond || o.Poll > maxPoll:
		return fmt.Errorf("lock: Poll must be in 1ms..%v, got %v", maxPoll, o.Poll)
	case o.MaxWait < 0:
		return fmt.Errorf("lock: MaxWait must not be negative, got %v", o.MaxWait)
	case o.Fallback < cluster.Divide || o.Fallback > cluster.RefuseAll:
		return fmt.Errorf("lock: Fallback must be Divide, AllowAll or RefuseAll, got %v", o.Fallback)
	case o.Nodes < 0 || o.Nodes > maxNodes:
		return fmt.Errorf("lock: Nodes must be in 1..%d, got %d", maxNodes, o.Nodes)
	case o.Fallback == cluster.Divide && o.Nodes == 0:
		return errors.New("lock: Nodes must be set to Divide the limit while Redis does not answer, got 0")
	}
	if err := call.ValidateName("Prefix", o.Prefix, "{}"); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}
