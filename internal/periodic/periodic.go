// Package periodic keeps a value that is made at most once per interval, in the call that needs it.
package periodic

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Value is made by [New]. Its method may be called concurrently.
type Value[T any] struct {
	interval time.Duration
	next     func(now time.Time) T
	last     atomic.Pointer[made[T]]
	mu       sync.Mutex // held by the caller that makes the next one
}

type made[T any] struct {
	value T
	at    time.Time
}

// New returns a Value that next makes. Calls of next never overlap.
func New[T any](interval time.Duration, next func(now time.Time) T) *Value[T] {
	return &Value[T]{interval: interval, next: next}
}

// At returns the value of the present interval. It makes it if no other caller does so at the moment; then it returns the
// value of the interval before. Only the first value is waited for.
func (v *Value[T]) At(now time.Time) T {
	last := v.last.Load()
	if last != nil && (now.Sub(last.at) < v.interval || !v.mu.TryLock()) {
		return last.value
	}
	if last == nil {
		v.mu.Lock()
	}
	defer v.mu.Unlock()
	if last = v.last.Load(); last != nil && now.Sub(last.at) < v.interval {
		return last.value
	}
	next := &made[T]{value: v.next(now), at: now}
	v.last.Store(next)
	return next.value
}
