package cluster

import (
	"context"
	"sync"
	"time"
)

const (
	maxReturning = 1 << 16 // permits on their way back; what exceeds it comes back by its TTL
	batch        = 100     // tokens in a call
	lanes        = 8       // calls at a time, which matters where Redis is far away
)

// A semReturn is a token to give back, unless the time is over after which Redis forgets it by itself.
type semReturn struct {
	key, token string
	bury       bool
	until      time.Time
}

// A semGroup is tokens that one call can serve.
type semGroup struct {
	key  string
	bury bool
}

// renewLoop renews what is due, until Close.
func (s *Semaphore) renewLoop() {
	beat := time.NewTicker(s.ttl / 24)
	defer beat.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-beat.C:
			s.renewDue(time.Now())
		}
	}
}

// renewDue renews the leases that are due, and returns when Redis has answered or has not.
func (s *Semaphore) renewDue(now time.Time) {
	due := map[string][]*semPermit{}
	s.mu.Lock()
	for _, p := range s.permits {
		if p.step(now) == semRenew {
			due[p.key] = append(due[p.key], p)
		}
	}
	s.mu.Unlock()
	var run lane
	for key, permits := range due {
		for part := range parts(permits) {
			run.do(func() { s.renewSome(key, part) })
		}
	}
	run.wait()
}

func (s *Semaphore) renewSome(key string, permits []*semPermit) {
	tokens := make([]string, len(permits))
	for i, p := range permits {
		tokens[i] = p.token
	}
	sent := time.Now()
	got, err := s.renew(s.ctx, key, tokens)
	if err != nil {
		s.counts.unknown.Add(1)
	}
	for i, p := range permits {
		p.answered(sent, err == nil && got[i] == 1, err)
	}
}

// giveBack has a permit given back in the background. It never waits.
func (s *Semaphore) giveBack(r semReturn) {
	s.mu.Lock()
	fits := len(s.back) < maxReturning
	if fits {
		s.back = append(s.back, r)
	}
	s.mu.Unlock()
	if !fits {
		s.counts.dropped.Add(1)
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// returnLoop gives back what there is to give back, until Close, and once more then.
func (s *Semaphore) returnLoop() {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		select {
		case <-s.ctx.Done():
			s.returnAll(context.Background())
			s.mu.Lock()
			s.counts.dropped.Add(int64(len(s.back)))
			s.back = nil
			s.mu.Unlock()
			return
		case <-s.wake:
		case <-retry.C:
		}
		if left := s.returnAll(s.ctx); left > 0 {
			retry.Reset(s.poll)
		}
	}
}

// returnAll tells Redis of what is given back, and returns of how much it could not be told. That is tried again later.
func (s *Semaphore) returnAll(ctx context.Context) int {
	s.mu.Lock()
	back := s.back
	s.back, s.going = nil, len(back)
	s.mu.Unlock()
	now := time.Now()
	groups := map[semGroup][]semReturn{}
	for _, r := range back {
		if now.Before(r.until) {
			g := semGroup{r.key, r.bury}
			groups[g] = append(groups[g], r)
		} else {
			s.counts.dropped.Add(1)
		}
	}
	var run lane
	for g, all := range groups {
		for part := range parts(all) {
			run.do(func() { s.returnSome(ctx, g, part) })
		}
	}
	run.wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.going = 0
	return len(s.back)
}

func (s *Semaphore) returnSome(ctx context.Context, g semGroup, some []semReturn) {
	tokens := make([]string, len(some))
	for i, r := range some {
		tokens[i] = r.token
	}
	if err := s.release(ctx, g.key, tokens, g.bury); err != nil {
		s.counts.unknown.Add(1)
		s.mu.Lock()
		s.back = append(s.back, some...)
		s.mu.Unlock()
	}
}

// parts yields a slice in batches.
func parts[T any](all []T) func(yield func([]T) bool) {
	return func(yield func([]T) bool) {
		for len(all) > 0 {
			n := min(len(all), batch)
			if !yield(all[:n]) {
				return
			}
			all = all[n:]
		}
	}
}

// A lane runs functions, a few at a time.
type lane struct {
	running sync.WaitGroup
	room    chan struct{}
}

func (l *lane) do(f func()) {
	if l.room == nil {
		l.room = make(chan struct{}, lanes)
	}
	l.room <- struct{}{}
	l.running.Go(func() {
		defer func() { <-l.room }()
		f()
	})
}

func (l *lane) wait() { l.running.Wait() }
