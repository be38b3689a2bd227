package stats

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// pulled is a sample that is read anew at most once per interval, by one of those who ask, as that of a CPU is.
type pulled[S any] struct {
	interval time.Duration
	last     atomic.Pointer[dueSample[S]]
	mu       sync.Mutex // held by the one who reads
}

type dueSample[S any] struct {
	sample S
	due    time.Time
}

func newPulled[S any](interval time.Duration, first S) *pulled[S] {
	p := &pulled[S]{interval: interval}
	p.last.Store(&dueSample[S]{sample: first})
	return p
}

// get returns the last sample, after read has changed a copy of it if that is due.
func (p *pulled[S]) get(now time.Time, read func(*S, time.Time)) *S {
	last := p.last.Load()
	if now.Before(last.due) || !p.mu.TryLock() {
		return &last.sample
	}
	defer p.mu.Unlock()
	if last = p.last.Load(); now.Before(last.due) {
		return &last.sample
	}
	next := &dueSample[S]{sample: last.sample, due: now.Add(p.interval)}
	read(&next.sample, now)
	p.last.Store(next)
	return &next.sample
}

// intervalOf returns the interval, or the default if it is 0.
func intervalOf(sensor string, interval, otherwise time.Duration) (time.Duration, error) {
	if interval == 0 {
		interval = otherwise
	}
	if interval < time.Millisecond {
		return 0, fmt.Errorf("stats: %s: Interval must be at least 1ms, got %v", sensor, interval)
	}
	return interval, nil
}
