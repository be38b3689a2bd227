package limiter

import (
	"context"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/rejections"
)

// try takes n if that needs no wait. The caller holds the lock.
func (s *shaper) try(now, n int64) (wait int64, stamp uint64, v verdict) {
	if n < 0 || n > s.spacer.gcra.burst {
		s.counts.impossible++
		return 0, 0, impossible
	}
	wait, stamp, ok := s.spacer.tryNow(now, n)
	if !ok {
		return wait, 0, refused
	}
	s.counts.admitted++
	return 0, stamp, taken
}

// misuse returns the error for a cost that can never pass. The caller holds the lock.
func (s *shaper) misuse(n int) error {
	return &CostError{
		Limit: s.rule.Name, Cost: n, Max: int(s.spacer.gcra.burst), rejection: s.reject[rejections.Rate].Cost(int64(n)),
	}
}

// pass waits for the turn of a call.
func (s *shaper) pass(ctx context.Context, arrived time.Time, n int64) (stamp uint64, err error) {
	now := s.clock.ns(arrived)
	s.mu.Lock()
	_, stamp, v := s.try(now, n)
	if v == refused {
		sp, err := s.join(ctx, now, n)
		s.mu.Unlock()
		if err != nil {
			return 0, err
		}
		return s.await(ctx, sp, now)
	}
	s.mu.Unlock()
	if v == impossible {
		return 0, s.reject[rejections.Rate].Cost(n)
	}
	return stamp, nil
}

// join queues. The caller holds the lock.
func (s *shaper) join(ctx context.Context, now, n int64) (*spot, error) {
	if err := ctx.Err(); err != nil {
		s.cancelled++
		return nil, err
	}
	left := patience(ctx, readClock())
	sp, wait, reason := s.spacer.enqueue(now, n, int64(min(s.rule.MaxWait, left)), make(chan struct{}, 1))
	if sp != nil {
		return sp, nil
	}
	if reason == rejections.Wait && left < s.rule.MaxWait {
		reason = rejections.Deadline
	}
	return nil, s.reject[reason].count(wait)
}

// await blocks until the turn of sp, which arrived at now. The first in the queue watches the clock for all.
func (s *shaper) await(ctx context.Context, sp *spot, now int64) (stamp uint64, err error) {
	timer := time.NewTimer(horizon) //nolint:forbidigo // the shell that blocks
	defer timer.Stop()
	c := newClock()
	for {
		s.mu.Lock()
		s.spacer.grant(now + int64(c.elapsed()))
		if sp.granted {
			s.counts.admitted++
			s.waits.Record(c.elapsed())
			s.mu.Unlock()
			return sp.stamp, nil
		}
		if s.spacer.leader == sp {
			timer.Reset(time.Duration(s.spacer.leaderDue()-now) - c.elapsed())
		}
		s.mu.Unlock()
		select {
		case <-sp.ready:
		case <-timer.C:
		case <-ctx.Done():
			s.mu.Lock()
			s.spacer.cancel(now+int64(c.elapsed()), sp, sp.n)
			s.cancelled++
			s.mu.Unlock()
			return 0, ctx.Err()
		}
	}
}

func (s *shaper) giveBack(now int64, b loan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.n < 0 {
		return
	}
	b.n = min(b.n, s.spacer.gcra.burst)
	s.spacer.giveBack(now, b)
	s.counts.returned++
}

func (s *shaper) ns(t time.Time) int64 { return s.clock.ns(t) }

func (s *shaper) refund(now time.Time, r Reservation, n int64) {
	if r.spot == nil {
		s.giveBack(s.clock.ns(now), r.loan(n))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spacer.cancel(s.clock.ns(now), r.spot, n)
	s.counts.returned++
}

// isMisuse reports whether a request was refused because its cost can never pass.
func isMisuse(err error) bool {
	rej := spillway.RejectionOf(err)
	return rej != nil && (rej.Reason == rejections.TooLarge || rej.Reason == rejections.Negative)
}
