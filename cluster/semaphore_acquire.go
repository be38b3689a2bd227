package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway"
)

// TryAcquire returns a permit of a key if there is one, within one call of Redis: the caller releases it. If all are held, or
// others wait for those that are not, the error is a *[spillway.Rejection] with the reason limiter.ReasonLimit. A *[RedisError] says that
// Redis gave no answer; a permit that it may have granted goes back by itself.
func (s *Semaphore) TryAcquire(ctx context.Context, key string) (*Held, error) {
	p, err := s.try(ctx, ctx, key)
	if err != nil {
		return nil, err
	}
	return &Held{permit: p}, nil
}

// try asks once. The permit has a context if parent is not nil.
func (s *Semaphore) try(ctx, parent context.Context, key string) (*semPermit, error) {
	if !s.enter() {
		return nil, ErrClosed
	}
	defer s.calls.Done()
	serial, token := s.token()
	sent := time.Now()
	a, err := s.ask(ctx, key, token, false)
	switch {
	case err != nil:
		s.abandon(key, token, sent, err)
		return nil, err
	case !a.granted:
		s.counts.refused.Add(1)
		return nil, s.held
	}
	return s.adopt(parent, serial, key, token, a.fence, sent, false)
}

// Acquire waits until there is a permit of a key, and returns it: the caller releases it. If MaxWaiting others wait, the error
// is a *[spillway.Rejection] with the reason limiter.ReasonFull. If ctx ends first, the error is ctx.Err(), and the place in the queue is
// given up. A *[RedisError] says that Redis gave no answer: at once at first, and for one who waits when its place in the
// queue has lapsed.
func (s *Semaphore) Acquire(ctx context.Context, key string) (*Held, error) {
	if s.maxWaiting == 0 {
		return s.TryAcquire(ctx, key)
	}
	serial, token := s.token()
	if !s.enter() {
		return nil, ErrClosed
	}
	defer s.calls.Done()
	w := semWait{s: s, woken: s.enqueue(token)}
	defer s.dequeue(token)
	for {
		sent := time.Now()
		a, err := s.ask(ctx, key, token, true)
		switch {
		case err != nil && w.bears(err, sent):
		case err != nil:
			s.abandon(key, token, sent, err)
			return nil, err
		case a.full:
			s.counts.refused.Add(1)
			return nil, s.queue
		case a.granted:
			p, err := s.adopt(ctx, serial, key, token, a.fence, sent, w.unsure)
			if err != nil {
				return nil, err
			}
			return &Held{permit: p}, nil
		default:
			w.heard = sent
			s.listen()
		}
		if err := w.sleep(ctx, a); err != nil {
			s.abandon(key, token, sent, err)
			return nil, err
		}
	}
}

// A semWait is one that waits.
type semWait struct {
	s      *Semaphore
	woken  <-chan struct{}
	heard  time.Time // when the call was sent that gave or kept the place in the queue; zero without one
	unsure bool      // a call was not answered
}

// bears reports whether one who waits goes on in spite of an error.
func (w *semWait) bears(err error, sent time.Time) bool {
	w.unsure = true
	bears := errors.Is(err, ErrRedis) && !w.heard.IsZero() && sent.Sub(w.heard) < w.s.patience()
	if bears {
		w.s.counts.unknown.Add(1)
	}
	return bears
}

// sleep returns when it is time to ask again, or the error that ends the wait.
func (w *semWait) sleep(ctx context.Context, a semAnswer) error {
	d := w.s.poll - w.s.poll/10 + time.Duration(rand.Int64N(int64(w.s.poll/5)+1))
	if a.place == 1 && a.left > 0 {
		d = min(d, a.left+time.Millisecond)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-w.s.stop:
		return ErrClosed
	case <-w.woken:
	case <-timer.C:
	}
	return nil
}

// abandon has Redis forget a token of which it may know, now or when a call arrives that was sent before.
func (s *Semaphore) abandon(key, token string, sent time.Time, err error) {
	if errors.Is(err, ErrRedis) {
		s.counts.unknown.Add(1)
	}
	if errors.Is(err, spillway.ErrRejected) { // by the breaker: nothing was sent
		return
	}
	s.giveBack(semReturn{key: key, token: token, bury: true, until: sent.Add(s.ttl + s.patience())})
}
