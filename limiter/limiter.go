package limiter

import (
	"context"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/stats"
)

// A Limiter limits by one [Rule]. It is a [spillway.Policy], and can be called directly. With a [Shaper] or a [Queue],
// its Admit blocks.
//
// A request takes as many tokens as it costs. For a [Concurrency] and a [Queue] a token is a place, which is taken
// until it is released. A time before that of an earlier call counts as the time of that call, so a stale clock gains
// no tokens.
//
// It is made by [New]. All methods may be called concurrently. It owns no goroutine and needs no Close. Later versions may
// add methods, so embed a Limiter rather than implement it.
type Limiter interface { //nolint:interfacebloat // the interface stands for eight types with the same methods, so that each method is documented once
	Member
	stats.Source

	// Allow takes one token now if there is one, and reports whether it took one.
	Allow() bool

	// AllowAt takes n tokens at now if there are enough, and returns nil. Otherwise it takes none and returns the
	// *[spillway.Rejection] that says when to try again, or a *[CostError] if n is negative or can never pass. Taking 0
	// is always allowed.
	AllowAt(now time.Time, n int) error

	// Wait takes n tokens and returns when their time has come. It returns at once, and takes nothing, if n can never pass (a
	// *[CostError]), if ctx would end first (a *[spillway.Rejection] that matches [context.DeadlineExceeded] too), or if ctx
	// has ended. If ctx ends while it waits, it gives the tokens back, as [Reservation.RefundAt] does, and returns ctx.Err().
	//
	// Waiting callers are served in the order in which they came. With a [Shaper] or [Queue], their number and their
	// waiting time are bounded, and when a caller leaves, the callers behind it move up. With a [Concurrency] no caller
	// waits.
	Wait(ctx context.Context, n int) error

	// ReserveAt takes n tokens at now, or reserves them if they will be available within maxWait. The caller must wait
	// for [Reservation.Delay], may cancel until then, and may return unused tokens with [Reservation.RefundAt] later.
	// Otherwise ReserveAt takes none and returns an error like AllowAt. With a [Concurrency] or [Queue], it takes
	// places at once or not at all, because the time when places will be free is unknown.
	ReserveAt(now time.Time, n int, maxWait time.Duration) (Reservation, error)

	// Release gives back n places of a [Concurrency] or [Queue] that Allow, AllowAt or Wait took. It panics if fewer are
	// taken, and then changes nothing. For other rules it does nothing: time gives their tokens back.
	Release(n int)

	// PeekAt returns how much could be taken at now without waiting, and takes nothing.
	PeekAt(now time.Time) State

	// Quota returns the tokens left at now, for the RateLimit header fields of HTTP. A [Concurrency] and a [Queue] have
	// no window.
	Quota(now time.Time, r spillway.Request) spillway.Quota

	// Stats returns a snapshot of the counts. It may be called at any time.
	Stats() Stats

	// Rule returns the current rule, with every default filled in. Change its fields and pass it to Tune.
	Rule() Rule

	// Tune calls TuneAt with the current time.
	Tune(rule Rule) error

	// TuneAt replaces the rule from now on. Taken tokens stay taken: a greater limit adds the difference, and a smaller
	// limit removes it, but never goes below zero. Waiting callers keep their place. The error names the invalid field,
	// or the field that cannot change while the limit runs, such as Name. After an error nothing has changed.
	TuneAt(now time.Time, rule Rule) error

	// Check returns the rule that Tune would put in force, with every default filled in, or the error of Tune. It changes
	// nothing.
	Check(rule Rule) (Rule, error)
}

// A State describes what a limit can give at some instant.
type State struct {
	Limit     int64         // the most it gives at once
	Remaining int64         // tokens that could be taken now
	NextIn    time.Duration // time until Remaining grows; 0 if it is at its Limit or unknown; the greatest Duration if never
	FullIn    time.Duration // how long until Remaining is at its Limit, if no tokens are taken
}

// Stats is a snapshot of what a limit has done since it was made.
type Stats struct {
	Name       string
	Admitted   int64 // admitted requests, including reservations; a Concurrency does not count them, because that would double its cost
	Refused    int64 // requests refused for now: the sum of ByReason; an Allow that a Concurrency refuses is not counted
	ByReason   []spillway.Refusal
	Impossible int64 // requests refused because their cost can never pass
	Returned   int64 // admitted and later given back: refused by a later policy, cancelled or refunded

	// For a Concurrency and a Queue: places taken. It may exceed Limit for a while after Limit was lowered.
	InFlight int64
	// For a Shaper and a Queue: requests that wait now, including reservations, and requests that gave up because their
	// context ended or by [Reservation.CancelAt].
	Waiting, Cancelled int64
	// For a Queue: how many of Admitted had to wait.
	Waited int64
	// For a Shaper and a Queue, in seconds: the waits of admitted requests that had to wait, and of requests that were
	// refused after a wait.
	Waits, RefusedAfter stats.Distribution
}

// refuse adds n refusals for one reason.
func (s *Stats) refuse(reason string, n int64) {
	if n > 0 {
		s.Refused += n
		s.ByReason = append(s.ByReason, spillway.Refusal{Policy: s.Name, Reason: reason, Count: n})
	}
}
