package policytest

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spillway-go/spillway"
)

// The policies here keep the contract. They are plain, so that what is wrong with a broken one is easy to see.

var refusal = &spillway.Rejection{Policy: "test", Reason: "limit reached", RetryAfter: time.Second}

// A slots admits limit units of cost at once.
type slots struct {
	mu    sync.Mutex
	limit int
	used  int
}

func cost(r spillway.Request) int { return max(r.Cost, 1) }

func (s *slots) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cost(r) > s.limit-s.used {
		return 0, refusal
	}
	s.used += cost(r)
	return 0, nil
}

func (s *slots) Done(r spillway.Request, _ spillway.Ticket, _ spillway.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= cost(r)
}

// A tellingSlots is a slots that tells what it has in flight.
type tellingSlots struct{ slots }

type slotsStats struct{ Limit, InFlight int }

func (s *tellingSlots) Stats() slotsStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slotsStats{s.limit, s.used}
}

// A bucket admits size tokens at once and one more every refill.
type bucket struct {
	mu     sync.Mutex
	size   int
	refill time.Duration
	tokens int
	last   time.Time
}

func newBucket() *bucket { return &bucket{size: 20, refill: 10 * time.Millisecond, tokens: 20} }

func (b *bucket) fill(now time.Time) {
	if b.last.IsZero() || b.tokens >= b.size {
		b.last = latest(b.last, now)
		return
	}
	n := int(min(now.Sub(b.last)/b.refill, time.Duration(b.size)))
	if n <= 0 {
		return
	}
	b.tokens += n
	b.last = b.last.Add(time.Duration(n) * b.refill)
	if b.tokens >= b.size {
		b.tokens, b.last = b.size, latest(b.last, now)
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (b *bucket) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(r.Arrived)
	if cost(r) > b.tokens {
		return 0, refusal
	}
	b.tokens -= cost(r)
	return 0, nil
}

func (b *bucket) Done(r spillway.Request, _ spillway.Ticket, res spillway.Result) {
	if res.Outcome == spillway.Refused {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.tokens = min(b.tokens+cost(r), b.size)
	}
}

// A breaker opens after failures in a row, and after a pause lets probes through one at a time.
type breaker struct {
	mu       sync.Mutex
	failures int
	probing  bool
	gen      spillway.Ticket // even while closed, odd while open; a Done of another one does not count
	until    time.Time
}

const (
	tolerated = 5
	pause     = time.Minute
)

func (b *breaker) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gen%2 == 0 {
		return b.gen, nil
	}
	if b.probing || r.Arrived.Before(b.until) {
		return 0, refusal
	}
	b.probing = true
	return b.gen, nil
}

func (b *breaker) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t != b.gen {
		return
	}
	b.probing = false
	switch res.Outcome {
	case spillway.Success:
		b.failures = 0
		b.gen += b.gen % 2
	case spillway.Failure, spillway.Dropped:
		if b.failures++; b.failures < tolerated {
			return
		}
		b.until = latest(b.until, r.Arrived.Add(pause))
		b.gen += 2 - (b.gen+1)%2 // the next odd number
	}
}

// A keyed has slots for each key.
type keyed struct {
	mu    sync.Mutex
	byKey map[string]*slots
}

func (k *keyed) of(key string) *slots {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.byKey[key]
	if s == nil {
		s = &slots{limit: 3}
		k.byKey[key] = s
	}
	return s
}

func (k *keyed) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	return k.of(r.Key).Admit(ctx, r)
}

func (k *keyed) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	k.of(r.Key).Done(r, t, res)
}

// A throttle refuses by chance what is likely to fail, as clients do by the SRE book: max(0, (asked - 2 good) / (asked + 1)).
type throttle struct {
	mu          sync.Mutex
	rng         *rand.Rand
	began       time.Time
	asked, good float64
}

func (h *throttle) Admit(_ context.Context, r spillway.Request) (spillway.Ticket, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Arrived.Sub(h.began) > time.Minute {
		h.began, h.asked, h.good = r.Arrived, 0, 0
	}
	refuse := h.rng.Float64() < (h.asked-2*h.good-100)/(h.asked+1)
	h.asked++
	if refuse {
		return 0, refusal
	}
	return spillway.Ticket(h.began.UnixNano()) >> 1, nil
}

func (h *throttle) Done(_ spillway.Request, t spillway.Ticket, res spillway.Result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t != spillway.Ticket(h.began.UnixNano())>>1 {
		return
	}
	switch res.Outcome {
	case spillway.Success:
		h.good++
	case spillway.Refused:
		h.asked--
	}
}

// An adaptive has a limit that grows with good requests and halves with bad ones.
type adaptive struct{ tellingSlots }

func (a *adaptive) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	a.slots.Done(r, t, res)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch res.Outcome {
	case spillway.Success:
		a.limit = min(a.limit+1, 100)
	case spillway.Dropped:
		a.limit = max(a.limit/2, 2)
	}
}

// An open admits everything.
type open struct{}

func (open) Admit(context.Context, spillway.Request) (spillway.Ticket, error) { return 0, nil }
func (open) Done(spillway.Request, spillway.Ticket, spillway.Result)          {}

// A beating is a slots with a goroutine that Close ends.
type beating struct {
	slots
	closing chan struct{}
	once    sync.Once
}

func newBeating() *beating {
	b := &beating{slots: slots{limit: 4}, closing: make(chan struct{})}
	go b.beat()
	return b
}

func (b *beating) beat() {
	t := time.NewTicker(time.Hour)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-b.closing:
			return
		}
	}
}

func (b *beating) Close() { b.once.Do(func() { close(b.closing) }) }
