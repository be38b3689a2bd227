// Package shadow tries policies on live traffic without letting them refuse.
//
//	trial := shadow.New(candidate, another)
//	gate := spillway.New(trial, shed) // shed refuses, the candidates do not
//
// [Shadow.Stats] says what each candidate would have refused, and how often it would have been right.
package shadow

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/isnil"
	"github.com/spillway-go/spillway/internal/splitmix"
	"github.com/spillway-go/spillway/internal/tally"
	"github.com/spillway-go/spillway/stats"
)

// maxCandidates is the greatest number of candidates of a Shadow. It equals the greatest number of policies of a Gate.
const maxCandidates = 8

// noTicket is the Ticket of a Shadow for a request that its only candidate did not admit. Policies do not issue it.
const noTicket = ^spillway.Ticket(0)

// New returns a Shadow, which asks up to eight candidates about every request and refuses nothing: a dry run on live
// traffic. It counts the requests that each candidate would have refused, and how many of these decisions were right.
// Put it in front of the policies that refuse, so that it sees every request. A candidate learns only from requests
// that it admitted. Do not use a policy that queues, because requests would wait in it needlessly. New panics if
// there is no candidate, if one is nil, or if there are more than eight.
func New(candidates ...spillway.Policy) *Shadow {
	if len(candidates) == 0 || len(candidates) > maxCandidates {
		panic(fmt.Sprintf("shadow: New: from 1 to %d candidates, got %d", maxCandidates, len(candidates)))
	}
	s := &Shadow{candidates: make([]shadowed, len(candidates))}
	for i, p := range candidates {
		if isnil.Is(p) {
			panic(fmt.Sprintf("shadow: New: candidate %d is nil", i))
		}
		s.candidates[i].policy = p
	}
	// With one candidate, its ticket is the shadow's ticket, unless it could be mistaken for noTicket.
	if _, nested := candidates[0].(*Shadow); nested || len(candidates) > 1 {
		s.stash = newStash()
	}
	return s
}

// A Shadow runs other policies without letting them refuse, except for the part of the traffic that
// [Shadow.Enforce] gives them. It is made by [New] and safe for concurrent use.
type Shadow struct {
	candidates []shadowed
	slo        atomic.Int64
	enforced   atomic.Pointer[enforcement] // nil if nothing is
	stash      *stash                      // nil if a ticket is the only candidate's
}

// shadowed is a candidate with its counts.
type shadowed struct {
	policy                        spillway.Policy
	admitted, cancelled, enforced stats.Counter
	refusedBehind, letThrough     stats.Counter
	regretAdmitted, regretRefused stats.Counter
	refusals                      tally.Tally
}

// Stats is a snapshot of what a [Shadow] has seen of one candidate.
type Stats struct {
	Admitted    int64              // admitted by the candidate
	WouldRefuse int64              // refusals by the candidate: the sum of ByReason
	Cancelled   int64              // refused without a *Rejection: the request's ctx ended in its queue
	ByReason    []spillway.Refusal // by policy and reason; Index is the candidate's

	Enforced int64 // the part of WouldRefuse that was really refused; see Enforce

	// Decisions of the candidate that differ from what happened, counted when the request ends.
	RefusedBehind int64 // the part of Admitted that was refused by a policy behind the shadow, or by another enforced candidate
	LetThrough    int64 // the part of WouldRefuse and Cancelled that ran

	// Wrong decisions, counted when the request ends. Ignored outcomes do not count.
	RegretAdmitted int64 // the part of Admitted that failed, was dropped, or took longer than the SLO
	RegretRefused  int64 // the part of LetThrough that succeeded within the SLO
}

// SetSLO sets the latency up to which a success counts as good in the counts of wrong decisions, from now on. If d is
// 0, the default, every success is good. A negative d is an error.
func (s *Shadow) SetSLO(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("shadow: SLO must not be negative, got %v", d)
	}
	s.slo.Store(int64(d))
	return nil
}

// enforcement holds, for each candidate, the end of its part of the traffic, as a fraction of 2^64.
type enforcement []uint64

// Enforce lets candidates really refuse requests, each in a fraction of the traffic, from 0 to 1, from now on. The fractions are
// those of candidates 0, 1 and so on; candidates without one refuse nothing. All fractions change at once. Each request belongs
// to at most one candidate, so their sum may not exceed 1. With 0.5 and 0.5, two candidates are compared on halves of the same
// traffic. The nanosecond of its arrival alone decides which candidate a request belongs to. An invalid value is an error and
// changes nothing.
func (s *Shadow) Enforce(fractions ...float64) error {
	if len(fractions) > len(s.candidates) {
		return fmt.Errorf("shadow: there must be at most %d fractions, one for each candidate, got %d", len(s.candidates), len(fractions))
	}
	ends := make(enforcement, len(fractions))
	sum := 0.0
	for i, f := range fractions {
		if !(f >= 0 && f <= 1) {
			return fmt.Errorf("shadow: fraction must be from 0 to 1, got %v", f)
		}
		if sum += f; sum > 1+1e-9 {
			return fmt.Errorf("shadow: fractions of all candidates must not exceed 1, got %v", fractions)
		}
		ends[i] = share(sum)
	}
	s.enforced.Store(&ends)
	return nil
}

// share returns f of 2^64.
func share(f float64) uint64 {
	if f >= 1-1e-9 {
		return math.MaxUint64
	}
	return uint64(f * (1 << 63) * 2)
}

// owner returns the candidate to which a request that arrived at now belongs, or -1.
func (e *enforcement) owner(now time.Time) int {
	if e == nil {
		return -1
	}
	draw := splitmix.Mix(uint64(now.UnixNano()))
	begin := uint64(0)
	for i, end := range *e {
		if end > begin && draw >= begin && (draw < end || end == math.MaxUint64) {
			return i
		}
		begin = end
	}
	return -1
}

// Admit asks all candidates and admits the request, unless [Shadow.Enforce] gave it to a candidate that refuses it.
func (s *Shadow) Admit(ctx context.Context, r spillway.Request) (spillway.Ticket, error) {
	owner := s.enforced.Load().owner(r.Arrived)
	var a answers
	for i := range s.candidates {
		t, err := s.candidates[i].ask(ctx, r, i)
		if err != nil && owner == i {
			s.candidates[i].enforced.Add(1)
			s.finish(r, &a, i, spillway.Result{Outcome: spillway.Refused})
			return 0, err
		}
		a.tickets[i] = t
		if err == nil {
			a.admitted |= 1 << i
		}
	}
	if s.stash == nil {
		return a.tickets[0], nil
	}
	return s.stash.put(&a), nil
}

// ask asks candidate i. The ticket is noTicket if it refuses.
func (c *shadowed) ask(ctx context.Context, r spillway.Request, i int) (spillway.Ticket, error) {
	t, err := c.policy.Admit(ctx, r)
	if err == nil {
		c.admitted.Add(1)
		return t, nil
	}
	if rej := spillway.RejectionOf(err); rej != nil {
		c.refusals.Add(i, rej.Policy, rej.Reason)
	} else {
		c.cancelled.Add(1)
	}
	return noTicket, err
}

// Done reports the result to the candidates that admitted the request, and judges the decisions of all.
func (s *Shadow) Done(r spillway.Request, t spillway.Ticket, res spillway.Result) {
	var a answers
	switch {
	case s.stash != nil:
		s.stash.take(t, &a)
	case t != noTicket:
		a = answers{tickets: [maxCandidates]spillway.Ticket{t}, admitted: 1}
	}
	s.finish(r, &a, len(s.candidates), res)
}

// finish ends a request at the first n candidates, the last of them first.
func (s *Shadow) finish(r spillway.Request, a *answers, n int, res spillway.Result) {
	slo := s.slo.Load()
	for i := n - 1; i >= 0; i-- {
		c, admitted := &s.candidates[i], a.admitted&(1<<i) != 0
		if admitted {
			c.policy.Done(r, a.tickets[i], res)
		}
		c.judge(admitted, res, slo)
	}
}

// judge compares the decision of the candidate with the result of the request.
func (c *shadowed) judge(admitted bool, res spillway.Result, slo int64) {
	if res.Outcome == spillway.Refused {
		if admitted {
			c.refusedBehind.Add(1)
		}
		return
	}
	if !admitted {
		c.letThrough.Add(1)
	}
	late := slo > 0 && int64(res.Latency) > slo
	switch good := res.Outcome == spillway.Success && !late; {
	case res.Outcome == spillway.Ignored:
	case admitted && !good:
		c.regretAdmitted.Add(1)
	case !admitted && good:
		c.regretRefused.Add(1)
	}
}

// Stats returns a snapshot of the counts of each candidate, in their order. It may be called at any time.
func (s *Shadow) Stats() []Stats {
	out := make([]Stats, len(s.candidates))
	for i := range s.candidates {
		c, st := &s.candidates[i], &out[i]
		*st = Stats{
			Admitted: c.admitted.Value(), Cancelled: c.cancelled.Value(), Enforced: c.enforced.Value(),
			RefusedBehind: c.refusedBehind.Value(), LetThrough: c.letThrough.Value(),
			RegretAdmitted: c.regretAdmitted.Value(), RegretRefused: c.regretRefused.Value(),
		}
		c.refusals.Each(func(e tally.Entry) {
			st.ByReason = append(st.ByReason, spillway.Refusal(e))
			st.WouldRefuse += e.Count
		})
	}
	return out
}

var _ spillway.Policy = (*Shadow)(nil)
