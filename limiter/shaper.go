package limiter

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/rejections"
	"github.com/spillway-go/spillway/internal/waited"
)

// A Shaper is the [Rule] of a leaky bucket used as a queue: requests arrive at any pace and pass one by one at an even
// pace, in the order of arrival. A request is refused at once if it would wait too long or too many requests wait. When
// a caller gives up, it leaves the queue, and the requests behind it move up. The leaky bucket in which no request
// waits is a [Bucket].
//
// A request waits for the cost of the request before it, not for its own: it passes when the time for the last cost is
// over. A new Shaper behaves as after a long pause. All fields but Name can change while it runs: a new Rate also
// applies to waiting requests, but not to the cost of the last request that passed.
type Shaper struct {
	// Rate is the pace. It is required, and must have at least one token.
	Rate Rate
	// Slack is the number of tokens that a pause may save up, which then pass without a wait. If Slack is 0, a pause
	// saves none.
	Slack int
	// MaxWait is the longest wait of a request; a request that would wait longer is refused at once. If MaxWait is 0,
	// it is one second.
	MaxWait time.Duration
	// MaxQueue is how many requests may wait. If MaxQueue is 0, it is 128.
	MaxQueue int
	// MaxCost is the greatest cost that can pass. If MaxCost is 0, it is Rate.Tokens.
	MaxCost int
	// Name is the name of the limit in rejections, metrics and header fields, in printable ASCII. If Name is empty, it
	// is "shaper".
	Name string
}

// spacer fills in the defaults and returns a new spacer, or an error that names the invalid field.
func (r *Shaper) spacer() (*spacer, error) {
	const kind = "Shaper"
	if r.MaxWait == 0 {
		r.MaxWait = time.Second
	}
	if r.MaxQueue == 0 {
		r.MaxQueue = 128
	}
	g, err := newGCRA(kind, r.Rate, r.MaxCost, "MaxCost")
	switch {
	case err != nil:
		return nil, err
	case g.a == 0:
		return nil, fmt.Errorf("limiter: %s: Rate.Tokens must be at least 1, got %d", kind, r.Rate.Tokens)
	case r.Slack < 0 || int64(r.Slack) > maxLevel/2/g.b:
		return nil, fmt.Errorf("limiter: %s: Slack must be in 0..%d, got %d", kind, maxLevel/2/g.b, r.Slack)
	case r.MaxWait < 0 || r.MaxWait > horizon:
		return nil, fmt.Errorf("limiter: %s: MaxWait must be in 0..%v, got %v", kind, time.Duration(horizon), r.MaxWait)
	case r.MaxQueue < 0:
		return nil, fmt.Errorf("limiter: %s: MaxQueue must not be negative, got %d", kind, r.MaxQueue)
	}
	r.MaxCost = int(g.burst)
	r.Name, err = named(kind, r.Name, "shaper")
	return &spacer{gcra: g, slack: int64(r.Slack) * g.b, maxQueue: r.MaxQueue}, err
}

func (r Shaper) build() (Limiter, error) {
	sp, err := r.spacer()
	if err != nil {
		return nil, err
	}
	s := &shaper{clock: newClock(), spacer: sp, rule: r, reject: map[string]*countedRefusals{}}
	for _, reason := range shaperReasons {
		s.reject[reason] = &countedRefusals{refusals: refusals{Set: rejections.New(r.Name, reason, true)}}
	}
	return s, nil
}

func (r Shaper) keyed(int) (keyedLimits, error) { return nil, errQueues(r) }

// shaperReasons are the reasons for which a shaper refuses.
var shaperReasons = [...]string{rejections.Rate, rejections.Wait, rejections.Full, rejections.Deadline}

// countedRefusals are the refusals of a shaper for one reason.
type countedRefusals struct {
	refusals
	n int64 // guarded by mu of the shaper
}

// count counts one refusal and returns it.
func (r *countedRefusals) count(wait int64) *spillway.Rejection {
	r.n++
	return r.after(time.Duration(wait))
}

// A shaper is the limit by a [Shaper].
type shaper struct {
	clock  clock
	reject map[string]*countedRefusals // by reason; never changed

	mu sync.Mutex
	// Guarded by mu.
	rule      Shaper
	spacer    *spacer
	counts    counts
	cancelled int64
	waits     waited.Recorder
}

// Queues returns true: Admit may block.
func (s *shaper) Queues() bool { return true }

// Admit waits for the turn of r. It returns a *[spillway.Rejection] at once if r cannot pass before MaxWait is over or
// before the deadline of ctx, or if MaxQueue requests wait. If ctx ends while r waits, it returns ctx.Err().
func (s *shaper) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	stamp, err := s.pass(ctx, r.Arrived, costOf(&r))
	return spillway.Ticket(stamp), err
}

// Done gives the turn of r back if it was [spillway.Refused], and waiting callers move up.
func (s *shaper) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	if res.Outcome == spillway.Refused {
		now := s.clock.ns(r.Arrived)
		s.giveBack(now, loan{n: costOf(&r), took: now, stamp: uint64(t)})
	}
}

func (s *shaper) Allow() bool { return s.AllowAt(readClock(), 1) == nil }

func (s *shaper) AllowAt(now time.Time, n int) error {
	m := s.clock.ns(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	wait, _, v := s.try(m, int64(n))
	switch v {
	case taken:
		return nil
	case refused:
		return s.reject[rejections.Rate].count(wait)
	}
	return s.misuse(n)
}

func (s *shaper) Wait(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.pass(ctx, readClock(), int64(n))
	if isMisuse(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.misuse(n)
	}
	return err
}

// ReserveAt implements [Limiter]. It takes a place in the queue, and MaxWait bounds its wait too.
func (s *shaper) ReserveAt(now time.Time, n int, maxWait time.Duration) (Reservation, error) {
	m := s.clock.ns(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, stamp, v := s.try(m, int64(n))
	switch v {
	case taken:
		return Reservation{from: s, n: int64(n), at: m, stamp: stamp}, nil
	case refused:
		sp, wait, reason := s.spacer.enqueue(m, int64(n), int64(min(maxWait, s.rule.MaxWait)), nil)
		if sp == nil {
			return Reservation{}, s.reject[reason].count(wait)
		}
		s.counts.admitted++
		return Reservation{from: s, n: int64(n), at: m, spot: sp, delay: time.Duration(wait)}, nil
	}
	return Reservation{}, s.misuse(n)
}

func (s *shaper) Rule() Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rule
}

func (s *shaper) Tune(rule Rule) error { return s.TuneAt(readClock(), rule) }

func (s *shaper) Check(rule Rule) (Rule, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, _, err := s.next(rule)
	return next, err
}

// next returns the rule that replaces the present one, with a spacer for it. The caller holds the lock.
func (s *shaper) next(rule Rule) (Shaper, *spacer, error) {
	next, ok := rule.(Shaper)
	if !ok {
		return next, nil, fmt.Errorf("limiter: Shaper: Tune: rule must be of the same kind, got %T", rule)
	}
	sp, err := next.spacer()
	if err != nil {
		return next, nil, err
	}
	if err := sameName("Shaper", s.rule.Name, next.Name); err != nil {
		return next, nil, err
	}
	if cost := s.spacer.waitingCost; cost > maxLevel/2/sp.gcra.b {
		return next, nil, fmt.Errorf("limiter: Shaper: Tune: Rate of %v is too slow for the cost of %d that waits", next.Rate, cost)
	}
	return next, sp, nil
}

func (s *shaper) TuneAt(now time.Time, rule Rule) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, sp, err := s.next(rule)
	if err != nil {
		return err
	}
	old := s.rule
	s.rule, s.spacer.maxQueue = next, next.MaxQueue
	if next.Rate != old.Rate || next.Slack != old.Slack || next.MaxCost != old.MaxCost {
		s.spacer.setRate(s.clock.ns(now), sp.gcra, sp.slack)
	}
	return nil
}

// PeekAt implements [Limiter]. The State is all or nothing, because if one request can pass, a request of any cost can.
func (s *shaper) PeekAt(now time.Time) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := State{Limit: s.spacer.gcra.burst, Remaining: s.spacer.gcra.burst}
	if wait := s.spacer.waitAt(s.clock.ns(now)); wait > 0 {
		st.Remaining, st.NextIn, st.FullIn = 0, time.Duration(wait), time.Duration(wait)
	}
	return st
}

func (s *shaper) Idle(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spacer.idle(s.clock.ns(now))
}

// Release does nothing: time gives tokens back.
func (s *shaper) Release(int) {}

func (s *shaper) Quota(now time.Time, _ spillway.Request) spillway.Quota {
	st := s.PeekAt(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	return spillway.Quota{Name: s.rule.Name, Limit: st.Limit, Remaining: st.Remaining, Window: s.spacer.gcra.window(), Reset: st.NextIn}
}

func (s *shaper) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.counts
	st := Stats{
		Name: s.rule.Name, Admitted: c.admitted, Impossible: c.impossible, Returned: c.returned,
		Waiting: int64(s.spacer.waiting), Cancelled: s.cancelled, Waits: s.waits.Value(),
	}
	for _, reason := range shaperReasons {
		st.refuse(reason, s.reject[reason].n)
	}
	return st
}

var _ spillway.Policy = (*shaper)(nil)
