package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/call"
	"github.com/spillway-go/spillway/cluster/internal/reason"
)

// TryAcquire returns a permit of a key if there is one, within one call of Redis. The caller releases it. If all are
// held, or other callers wait for the free ones, the error is a *[spillway.Rejection] with the reason
// "limit reached". A *[cluster.RedisError] says that Redis did not answer; a permit that it may have granted goes back by
// itself.
func (s *Semaphore) TryAcquire(ctx context.Context, key string) (*Lease, error) {
	p, err := s.try(ctx, ctx, key)
	if err != nil {
		return nil, err
	}
	return &Lease{permit: p}, nil
}

// try asks once. The permit has a context if parent is not nil.
func (s *Semaphore) try(ctx, parent context.Context, key string) (*permit, error) {
	if s.conn == nil {
		return nil, call.ErrZero
	}
	if !s.enter() {
		return nil, ErrClosed
	}
	defer s.calls.Done()
	serial, token := s.token()
	sent := time.Now()
	a, err := s.ask(ctx, key, token, 0)
	switch {
	case err != nil:
		s.abandon(key, token, sent, err)
		return nil, err
	case !a.granted:
		return nil, s.refuse(refusedLimit)
	}
	return s.adopt(parent, serial, key, token, a.fence, sent, false)
}

// Acquire waits for a permit of a key, and returns it. The caller releases it. If MaxQueue others wait, the error is
// a *[spillway.Rejection] with the reason "queue full", and after MaxWait one with "wait too long". If ctx
// ends first, the error is ctx.Err(), and the call gives up its place in the queue. A *[cluster.RedisError] says that Redis did
// not answer. A new call returns it at once; a waiting call returns it when its place in the queue has lapsed.
//
// As ctx is the parent of [Lease.Context] too, a deadline of ctx bounds the wait and the work together. To bound the wait alone,
// use MaxWait.
func (s *Semaphore) Acquire(ctx context.Context, key string) (*Lease, error) {
	if s.Options().MaxQueue <= 0 || s.conn == nil {
		return s.TryAcquire(ctx, key)
	}
	serial, token := s.token()
	if !s.enter() {
		return nil, ErrClosed
	}
	defer s.calls.Done()
	w := waiting{s: s, woken: s.enqueue(token), poll: s.poll, until: s.deadline(), began: time.Now()}
	defer s.dequeue(token)
	for {
		sent := time.Now()
		a, err := s.ask(ctx, key, token, s.patience(w.poll))
		switch {
		case err != nil && w.bears(err, sent):
		case err != nil:
			s.abandon(key, token, sent, err)
			return nil, err
		case a.full:
			return nil, s.refuse(refusedFull)
		case a.granted:
			p, err := s.adopt(ctx, serial, key, token, a.fence, sent, w.unsure)
			if err != nil {
				return nil, err
			}
			if !w.heard.IsZero() {
				s.counts.waits.record(time.Since(w.began))
			}
			return &Lease{permit: p}, nil
		default:
			w.heard, w.lasts = sent, s.patience(w.poll)
			s.listen()
		}
		if err := w.sleep(ctx, a); err != nil {
			s.abandon(key, token, sent, err)
			return nil, err
		}
	}
}

// A waiting is the state of a waiting call.
type waiting struct {
	s      *Semaphore
	woken  <-chan struct{}
	heard  time.Time     // when the call that gave or kept the place in the queue was sent; zero without a place
	lasts  time.Duration // how long that place lasts
	poll   time.Duration // how often Redis expects a call
	until  time.Time     // when it gives up; zero if never
	began  time.Time
	unsure bool // a call was not answered
}

// bears reports whether a waiting call continues in spite of an error.
func (w *waiting) bears(err error, sent time.Time) bool {
	w.unsure = true
	bears := call.Unanswered(err) && !w.heard.IsZero() && sent.Sub(w.heard) < w.lasts
	if bears {
		w.s.counts.unanswered.Add(1)
	}
	return bears
}

// sleep returns when it is time to ask again, or the error that ends the wait.
func (w *waiting) sleep(ctx context.Context, a answer) error {
	d := w.poll - w.poll/10 + time.Duration(rand.Int64N(int64(w.poll/5)+1))
	if a.place == 1 && a.left > 0 {
		d = min(d, a.left+time.Millisecond)
	}
	w.poll = w.s.pollAt(a.place)
	if !w.until.IsZero() {
		left := time.Until(w.until)
		if left <= 0 {
			w.s.counts.refusedAfter.record(time.Since(w.began))
			return w.s.refuse(refusedWait)
		}
		d = min(d, left)
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

// The number of places in the queue that add one Poll to the time between two calls of a waiting caller, and the most that they
// add. So a long queue does not keep Redis busy: callers at the head ask often, and the others are woken when they get there.
const (
	placesPerPoll = 8
	maxPollFactor = 16
	maxPatience   = 50 * time.Second // the script grants a minute
)

// pollAt returns how often the caller at a place in the queue asks, from its next call on. Without messages it is
// always Poll.
func (s *Semaphore) pollAt(place int64) time.Duration {
	if !s.listening.Load() {
		return s.poll
	}
	poll := s.poll * time.Duration(min(1+place/placesPerPoll, maxPollFactor))
	return max(min(poll, maxPatience/4), s.poll)
}

// deadline returns when a call that begins to wait now gives up.
func (s *Semaphore) deadline() time.Time {
	most := s.Options().MaxWait
	if most == 0 {
		return time.Time{}
	}
	return time.Now().Add(most)
}

// abandon makes Redis forget a token that it may know, now or when an earlier call arrives late.
func (s *Semaphore) abandon(key, token string, sent time.Time, err error) {
	if call.Unanswered(err) {
		s.counts.unanswered.Add(1)
	}
	var lost *cluster.RedisError
	if errors.As(err, &lost) && (lost.Reason == reason.Breaker || lost.Reason == reason.Busy) { // nothing was sent
		return
	}
	s.giveBack(handBack{key: key, token: token, bury: true, until: sent.Add(s.ttl + s.patience(s.poll))})
}
