package lock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// A permit is a lease of this process, for a [Lease] or for an admitted request.
type permit struct {
	s          *Semaphore
	serial     uint64
	key, token string
	fence      int64
	unsure     bool // an earlier call for the token may still be on its way

	ctx    context.Context //nolint:containedctx // the life of the lease; nil for a request
	cancel context.CancelCauseFunc
	timer  *time.Timer

	mu     sync.Mutex
	lease  tenure
	asked  time.Time // when the last call that may have taken or renewed the lease was sent; zero if there was none
	shares int
	lost   bool // the lease ended, or there was none yet
}

// register adds p to the permits. The caller holds the lock.
func (s *Semaphore) register(p *permit) {
	s.permits[p.serial] = p
	if p.ctx == nil {
		s.requests[p.key]++
	}
}

// unregister removes p. The caller holds the lock.
func (s *Semaphore) unregister(p *permit) {
	if s.permits[p.serial] != p {
		return
	}
	delete(s.permits, p.serial)
	if p.ctx == nil {
		if s.requests[p.key]--; s.requests[p.key] == 0 {
			delete(s.requests, p.key)
		}
	}
}

// adopt makes a permit of a grant by Redis, for a call that was sent at the given time, or gives it back if it is too
// late. A permit with a parent has a context.
func (s *Semaphore) adopt(parent context.Context, serial uint64, key, token string, fence int64, sent time.Time, unsure bool) (*permit, error) {
	p := &permit{
		s: s, serial: serial, key: key, token: token, fence: fence, unsure: unsure, shares: 1, asked: sent,
		lease: tenure{ttl: s.ttl, guard: s.guard, from: sent},
	}
	now := time.Now()
	if p.lease.step(now) == stepOver {
		s.giveBack(p.handBack())
		return nil, ErrLeaseLost
	}
	if parent != nil {
		p.ctx, p.cancel = context.WithCancelCause(parent)
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.register(p)
	}
	s.mu.Unlock()
	if closed {
		p.end(ErrClosed)
		s.giveBack(p.handBack())
		return nil, ErrClosed
	}
	if p.ctx != nil {
		p.mu.Lock()
		p.timer = time.AfterFunc(p.lease.ends().Sub(now), p.expire)
		p.mu.Unlock()
	}
	s.counts.admitted.Add(1)
	return p, nil
}

// step returns the next step for the lease, and does the local part of it.
func (p *permit) step(now time.Time) step {
	p.mu.Lock()
	defer p.mu.Unlock()
	step := p.lease.step(now)
	if step == stepOver {
		p.lose()
		if p.ctx == nil && p.lease.due(now) { // a request continues without its lease, and gets another one
			step = stepRenew
		}
	}
	if step == stepRenew {
		p.asked = now
	}
	return step
}

// lose ends the context of the permit. The caller holds the lock.
func (p *permit) lose() {
	if p.lost || p.shares == 0 {
		return
	}
	p.lost = true
	p.s.counts.lapsed.Add(1)
	if p.cancel != nil {
		p.cancel(ErrLeaseLost)
	}
}

// expire runs when the lease ends, unless it was renewed meanwhile.
func (p *permit) expire() {
	now := time.Now()
	if p.step(now) == stepOver {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shares > 0 {
		p.timer.Reset(p.lease.ends().Sub(now))
	}
}

// answered records the reply of Redis to a renewal.
func (p *permit) answered(sent time.Time, yes bool, err error) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx == nil && p.shares == 0 && (yes || err != nil) { // its release may have come before the renewal
		p.s.giveBack(p.back())
		return
	}
	switch {
	case err != nil:
		p.lease.unanswered(now)
	case yes && p.ctx == nil:
		p.lease.regained(sent)
		p.lost = false
	case yes:
		if !p.lease.renewed(sent, now) {
			p.lose()
		}
	case sent.After(p.lease.from): // an answer older than the last yes says nothing
		p.lease.refused()
		p.lose()
	}
}

// end ends the use of the permit by this process, and reports whether it was still valid. Ending it twice is harmless.
func (p *permit) end(cause error) (good bool) {
	p.s.mu.Lock()
	p.s.unregister(p)
	p.s.mu.Unlock()
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lease.step(now) == stepOver {
		p.lose()
	}
	p.shares = 0
	p.lease.over = true
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.cancel != nil {
		p.cancel(cause)
	}
	return !p.lost
}

// handBack returns the release to send to Redis. Its time is zero if Redis knows nothing of the permit.
func (p *permit) handBack() handBack {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.back()
}

// back does the same for a caller that holds the lock.
func (p *permit) back() handBack {
	b := handBack{key: p.key, token: p.token, bury: p.unsure}
	if !p.asked.IsZero() {
		b.until = p.asked.Add(p.s.ttl + p.s.ttl/10)
	}
	return b
}

// A Lease is a permit of a [Semaphore]. Its methods may be called concurrently.
type Lease struct {
	permit   *permit
	released atomic.Bool
}

// Context returns a context that ends when the lease ends, Guard earlier than Redis gives the permit to another holder.
// It also ends when the Lease is released, or when the context given to Acquire ends. [context.Cause] is the reason:
// [ErrLeaseLost], [context.Canceled] or the cause of the parent. The end of the context does not release the permit:
// Release does.
func (h *Lease) Context() context.Context {
	if h.permit == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(ErrLeaseLost)
		return ctx
	}
	return h.permit.ctx
}

// Fence returns a number greater than that of every earlier Lease of the same key, in any process. The storage that you
// write to should refuse numbers smaller than the largest it has seen. That is the only protection against a holder
// that was stopped and does not know yet that it lost the lease. The number follows the clock of Redis in µs, and
// counts on from the last one while Redis keeps that, for a day after its last use. So it grows even if Redis loses its
// memory, with one exception: if the clock was ahead, was set right, and Redis then loses the last number, numbers
// start below the earlier ones until the clock has caught up.
func (h *Lease) Fence() int64 {
	if h.permit == nil {
		return 0
	}
	return h.permit.fence
}

// Key returns the key that is held.
func (h *Lease) Key() string {
	if h.permit == nil {
		return ""
	}
	return h.permit.key
}

// Remaining returns how long the lease lasts without another renewal: 0 or less if it has ended. A check before a step
// that must not be late helps, but proves nothing, as this process may be stopped right after it.
func (h *Lease) Remaining() time.Duration {
	if h.permit == nil {
		return 0
	}
	h.permit.mu.Lock()
	defer h.permit.mu.Unlock()
	if h.permit.lease.over || h.released.Load() {
		return 0
	}
	return time.Until(h.permit.lease.ends())
}

// Clone returns another handle of the same permit, which is released when all its handles are. So a holder of a lock
// can call a function that needs the same lock. The error is [ErrLeaseLost] if the lease has ended or was released.
func (h *Lease) Clone() (*Lease, error) {
	p := h.permit
	if p == nil {
		return nil, ErrLeaseLost
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.released.Load() || p.shares == 0 || p.lease.step(now) == stepOver {
		return nil, ErrLeaseLost
	}
	p.shares++
	return &Lease{permit: p}, nil
}

// Release gives the permit back and wakes the next waiting caller, within one call of Redis. If Redis does not answer,
// the error says so, and the permit is given back later or ends with its TTL. [ErrLeaseLost] says that the lease ended
// before, so another holder may have run at the same time. Releasing a Lease twice is harmless.
func (h *Lease) Release() error {
	p := h.permit
	if p == nil || h.released.Swap(true) || !p.leave() {
		return nil
	}
	good := p.end(context.Canceled)
	back := p.handBack()
	scripts := p.s.scripts
	_, errs := p.s.conn.RunAll(context.Background(), scripts.release, [][]any{p.s.release(back.key, []string{back.token}, back.bury)})
	err := errs[0]
	if err != nil {
		p.s.counts.unanswered.Add(1)
		p.s.giveBack(back)
	}
	if !good {
		err = errors.Join(ErrLeaseLost, err)
	}
	return err
}

// leave ends one handle and reports whether it was the last.
func (p *permit) leave() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shares == 0 {
		return false
	}
	p.shares--
	if p.shares > 0 {
		return false
	}
	p.shares = 1 // until end
	return true
}
