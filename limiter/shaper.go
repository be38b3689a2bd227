package limiter

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-go/spillway"
)

// The defaults of [ShaperOptions].
const (
	DefaultShaperWait  = time.Second
	DefaultShaperQueue = 128
)

// A Shaper is a leaky bucket used as a queue: requests come as they like and pass one by one at an even pace, in the order
// in which they came. One who would wait too long, or finds too many waiting, is refused at once; one who gives up leaves
// the queue, and those behind move up. The leaky bucket that makes nobody wait is a [Policer].
//
// A request pays for the one before: whatever it costs, it passes when the time that the last one costs is over. A Shaper
// begins as after a long pause.
//
// A Shaper is a [spillway.Queuer]: its Admit blocks. It owns no goroutine and needs no Close. It is made by [NewShaper]; the
// zero Shaper denies everything. All methods may be called concurrently.
type Shaper struct {
	clock  clock
	reject map[string]*rejections // by reason; never changed

	mu sync.Mutex
	// Guarded by mu.
	spacer    *spacer // nil in the zero value
	opts      ShaperOptions
	counts    counts
	cancelled int64
}

// ShaperOptions tune a [Shaper]. Rate has to be set.
type ShaperOptions struct {
	// Rate is the pace. It must have at least one token.
	Rate Rate
	// Slack is how many tokens a pause may save up, which then pass without a wait. If Slack is 0, none.
	Slack int
	// MaxWait is the longest that a request may have to wait; one that would wait longer is refused at once.
	// If MaxWait is 0, it is one second.
	MaxWait time.Duration
	// MaxQueue is how many requests may wait. If MaxQueue is 0, it is 128.
	MaxQueue int
	// MaxCost is the greatest cost that can pass. If MaxCost is 0, it is Rate.Tokens.
	MaxCost int
	// Name is what rejections, metrics and header fields call the limit, in printable ASCII. If Name is empty, it is
	// "shaper".
	Name string
}

// ShaperStats is a snapshot of a [Shaper].
type ShaperStats struct {
	Stats
	Waiting   int64 // in the queue now, reservations included
	Cancelled int64 // left the queue because their context ended, or by [Reservation.Cancel]
}

// NewShaper returns a Shaper in which nobody waits. The error names the field that cannot be right.
func NewShaper(o *ShaperOptions) (*Shaper, error) {
	var opts ShaperOptions
	if o != nil {
		opts = *o
	}
	if opts.Name == "" {
		opts.Name = "shaper"
	}
	if opts.MaxWait == 0 {
		opts.MaxWait = DefaultShaperWait
	}
	if opts.MaxQueue == 0 {
		opts.MaxQueue = DefaultShaperQueue
	}
	sp, err := opts.build()
	if err != nil {
		return nil, err
	}
	s := &Shaper{clock: newClock(), spacer: sp, opts: opts, reject: map[string]*rejections{}}
	for _, reason := range []string{ReasonRate, ReasonWait, ReasonFull, ReasonDeadline} {
		s.reject[reason] = newRejections(opts.Name, reason, true)
	}
	return s, nil
}

// build returns a new spacer by options that have their defaults.
func (o *ShaperOptions) build() (*spacer, error) {
	if err := validateName("Shaper", o.Name); err != nil {
		return nil, err
	}
	g, err := newGCRA("Shaper", o.Rate, o.MaxCost, "MaxCost")
	switch {
	case err != nil:
		return nil, err
	case g.a == 0:
		return nil, fmt.Errorf("limiter: Shaper: Rate.Tokens must be at least 1, got %d", o.Rate.Tokens)
	case o.Slack < 0 || int64(o.Slack) > maxLevel/2/g.b:
		return nil, fmt.Errorf("limiter: Shaper: Slack must be in 0..%d, got %d", maxLevel/2/g.b, o.Slack)
	case o.MaxWait < 0 || o.MaxWait > horizon:
		return nil, fmt.Errorf("limiter: Shaper: MaxWait must be in 0..%v, got %v", time.Duration(horizon), o.MaxWait)
	case o.MaxQueue < 0:
		return nil, fmt.Errorf("limiter: Shaper: MaxQueue must not be negative, got %d", o.MaxQueue)
	}
	return &spacer{gcra: g, slack: int64(o.Slack) * g.b, maxQueue: o.MaxQueue}, nil
}

// Queues does nothing: it marks that Admit may block.
func (s *Shaper) Queues() {}

// Admit waits until it is the turn of r. It returns at once, with a *[spillway.Rejection], if r cannot pass before MaxWait
// is over or before the deadline of ctx, or if MaxQueue requests wait. If ctx ends while r waits, it returns ctx.Err().
func (s *Shaper) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	stamp, err := s.pass(ctx, r.Arrived, costOf(&r))
	return spillway.Ticket(stamp), err
}

// Done gives the turn of r back if it was [spillway.Refused], and those who wait move up.
func (s *Shaper) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	if res.Outcome == spillway.Refused {
		now := s.clock.ns(r.Arrived)
		s.giveBack(now, loan{n: costOf(&r), took: now, stamp: uint64(t)})
	}
}

// Allow takes one token if it may pass without waiting, and reports whether it may.
func (s *Shaper) Allow() bool { return s.AllowAt(readClock(), 1) == nil }

// AllowAt takes n tokens at now if they may pass without waiting, and returns nil. Otherwise it returns the
// *[spillway.Rejection] that says when to try again, or a *[CostError] if n is negative or can never pass.
func (s *Shaper) AllowAt(now time.Time, n int) error {
	m := s.clock.ns(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	wait, _, v := s.try(m, int64(n))
	switch v {
	case taken:
		return nil
	case refused:
		s.counts.refused++
		return s.reject[ReasonRate].after(time.Duration(wait))
	}
	return s.misuse(n, v)
}

// Wait is Admit for n tokens now. An n that is negative or can never pass is a *[CostError]. A refusal because of the deadline of
// ctx matches [context.DeadlineExceeded] too.
func (s *Shaper) Wait(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.pass(ctx, readClock(), int64(n))
	if isMisuse(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.misuse(n, impossible)
	}
	if rej := spillway.RejectionOf(err); rej != nil && rej.Reason == ReasonDeadline {
		return tooLateError{rej}
	}
	return err
}

// Reserve is [Shaper.ReserveAt] now.
func (s *Shaper) Reserve(n int, maxWait time.Duration) (Reservation, error) {
	return s.ReserveAt(readClock(), n, maxWait)
}

// ReserveAt takes a place in the queue for n tokens at now, whose turn comes within maxWait and MaxWait: the caller has to
// wait for [Reservation.Delay], and may cancel or refund, whereupon those behind move up. Otherwise it returns an error as AllowAt does.
func (s *Shaper) ReserveAt(now time.Time, n int, maxWait time.Duration) (Reservation, error) {
	m := s.clock.ns(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, stamp, v := s.try(m, int64(n))
	switch v {
	case taken:
		return Reservation{from: s, n: int64(n), at: m, stamp: stamp}, nil
	case refused:
		sp, wait, reason := s.spacer.enqueue(m, int64(n), int64(min(maxWait, s.opts.MaxWait)), nil)
		if sp == nil {
			s.counts.refused++
			return Reservation{}, s.reject[reason].after(time.Duration(wait))
		}
		s.counts.admitted++
		return Reservation{from: s, n: int64(n), at: m, spot: sp, delay: time.Duration(wait)}, nil
	}
	return Reservation{}, s.misuse(n, v)
}

// SetLimit is [Shaper.SetLimitAt] now.
func (s *Shaper) SetLimit(rate Rate) error { return s.SetLimitAt(readClock(), rate) }

// SetLimitAt changes the pace from now on, also for those who wait. What passed last takes as long as it would have. The
// error says that rate cannot be right, and then nothing has changed.
func (s *Shaper) SetLimitAt(now time.Time, rate Rate) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spacer == nil {
		return nil
	}
	opts := s.opts
	opts.Rate = rate
	sp, err := opts.build()
	if err != nil {
		return err
	}
	if cost := s.spacer.waitingCost; cost > maxLevel/2/sp.gcra.b {
		return fmt.Errorf("limiter: Shaper: Rate of %v is too slow for the cost of %d that waits", rate, cost)
	}
	s.opts = opts
	s.spacer.setRate(s.clock.ns(now), sp.gcra, sp.slack)
	return nil
}

// Peek returns what could pass without waiting, and takes nothing.
func (s *Shaper) Peek() State { return s.PeekAt(readClock()) }

// PeekAt is Peek at now. The State is all or nothing, since a request of any cost passes if one does.
func (s *Shaper) PeekAt(now time.Time) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spacer == nil {
		return State{}
	}
	st := State{Limit: s.spacer.gcra.burst, Remaining: s.spacer.gcra.burst}
	if wait := s.spacer.waitAt(s.clock.ns(now)); wait > 0 {
		st.Remaining, st.NextIn, st.FullIn = 0, time.Duration(wait), time.Duration(wait)
	}
	return st
}

// Idle reports whether at now nothing is lost by forgetting the Shaper.
func (s *Shaper) Idle(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spacer == nil || s.spacer.idle(s.clock.ns(now))
}

// Stats returns a snapshot of the counts. It may be called at any time.
func (s *Shaper) Stats() ShaperStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spacer == nil {
		return ShaperStats{}
	}
	return ShaperStats{Stats: s.counts.stats(s.opts.Name, 0), Waiting: int64(s.spacer.waiting), Cancelled: s.cancelled}
}

var _ spillway.Queuer = (*Shaper)(nil)
