package limiter

import "github.com/spillway-go/spillway/internal/rejections"

// A spacer is the rule of a Shaper: a queue in front of a leaky bucket. It is pure: the caller passes the time and
// holds the lock. The spacer signals waiters through their spot, when they may pass or should read the clock again.
type spacer struct {
	gcra     *gcra // its burst is the greatest cost
	slack    int64 // ticks
	maxQueue int

	state       gcraState
	moved       bool  // tokens came back since the last update: no request passes earlier than now
	head, tail  *spot // waiting requests, in order
	waiting     int
	waitingCost int64
	leader      *spot // the first waiter that watches the clock, on behalf of all; nil if none does
	before      int64 // the cost of those before the leader
}

// A spot is a place in the queue of a spacer.
type spot struct {
	n          int64
	stamp      uint64        // for giveBack; set when granted, as took
	took       int64         // ns
	granted    bool          // its time has come
	passed     bool          // counted in before
	ready      chan struct{} // signals when to read the clock again; nil if no goroutine waits, as for a Reservation
	prev, next *spot
}

// tell wakes the goroutine in sp, which then reads the clock again.
func (sp *spot) tell() {
	if sp != nil && sp.ready != nil {
		select {
		case sp.ready <- struct{}{}:
		default:
		}
	}
}

// due returns the time at which the next cost may be poured in.
func (s *spacer) due() int64 { return s.state.last + s.gcra.waitFor(s.state.level-s.slack) }

// pour lets a cost of n pass at an instant.
func (s *spacer) pour(at, n int64) (stamp uint64) {
	s.state.level, s.state.last = s.gcra.levelAt(&s.state, at)
	s.state.level += n * s.gcra.b
	return s.state.count(n)
}

// grant lets every waiter pass whose time has come by now, each at its own time. So a waiter that reads the clock late
// does not delay the others.
func (s *spacer) grant(now int64) {
	if s.moved {
		s.state.level, s.state.last = s.gcra.levelAt(&s.state, now)
		s.moved = false
	}
	leader := s.leader
	for s.head != nil {
		due := s.due()
		if due > now {
			break
		}
		sp := s.head
		s.remove(sp)
		sp.stamp, sp.took = s.pour(due, sp.n), due
		sp.granted = true
		sp.tell()
	}
	if s.leader != leader {
		s.leader.tell()
	}
}

// leaderDue returns the time of the leader's turn. It comes after the turns of the requests before it, which
// are not woken.
func (s *spacer) leaderDue() int64 {
	return s.state.last + s.gcra.waitFor(s.state.level+s.before*s.gcra.b-s.slack)
}

// lead makes the leader the first waiter, from sp on, that watches the clock.
func (s *spacer) lead(sp *spot) {
	for ; sp != nil && sp.ready == nil; sp = sp.next {
		sp.passed = true
		s.before += sp.n
	}
	s.leader = sp
}

// enqueue asks at now for a place in the queue, for a caller that has to wait at most maxWait. It returns the wait and
// the place, or nil and the reason for the refusal.
func (s *spacer) enqueue(now, n, maxWait int64, ready chan struct{}) (sp *spot, wait int64, reason string) {
	wait = s.waitAt(now)
	switch {
	case wait > maxWait, s.state.level > maxLevel-(s.waitingCost+n)*s.gcra.b:
		return nil, wait, rejections.Wait
	case s.waiting >= s.maxQueue:
		return nil, wait, rejections.Full
	}
	sp = &spot{n: n, ready: ready, prev: s.tail}
	if s.tail == nil {
		s.head = sp
	} else {
		s.tail.next = sp
	}
	s.tail = sp
	if s.leader == nil {
		s.lead(sp)
	}
	s.waiting++
	s.waitingCost += n
	return sp, wait, ""
}

// waitAt returns how long a caller that arrives at now would wait.
func (s *spacer) waitAt(now int64) int64 {
	level, last := s.gcra.levelAt(&s.state, now)
	return s.gcra.waitFor(level+s.waitingCost*s.gcra.b-s.slack) + last - now
}

// tryNow takes n if that needs no wait, and otherwise returns how long it would take.
func (s *spacer) tryNow(now, n int64) (wait int64, stamp uint64, ok bool) {
	s.grant(now)
	if wait = s.waitAt(max(now, s.state.last)); wait > 0 {
		return s.waitAt(now), 0, false
	}
	return 0, s.pour(now, n), true
}

// cancel takes n off the cost of sp. If nothing is left, sp leaves the queue or gives back its granted tokens. If a
// Reservation waits behind sp, sp keeps its place, because the Reservation already knows its time and would not notice
// that it has moved up.
func (s *spacer) cancel(now int64, sp *spot, n int64) {
	s.grant(now)
	switch {
	case sp.granted:
		s.giveBack(now, loan{n: n, rest: sp.n - n, took: sp.took, stamp: sp.stamp})
	case s.pledgedBehind(sp):
		if n == sp.n { // no goroutine waits for it now
			sp.ready = nil
			if s.leader == sp {
				s.lead(sp)
			}
		}
	case n == sp.n:
		s.remove(sp)
	default:
		sp.n -= n
		s.waitingCost -= n
		if sp.passed {
			s.before -= n
		}
	}
	s.leader.tell() // its time may have changed
}

// pledgedBehind reports whether a Reservation waits behind sp.
func (s *spacer) pledgedBehind(sp *spot) bool {
	for sp = sp.next; sp != nil; sp = sp.next {
		if sp.ready == nil {
			return true
		}
	}
	return false
}

// giveBack returns the cost that was poured in, so that all waiters move up when they read the clock. It returns
// nothing if a Reservation waits among them.
func (s *spacer) giveBack(now int64, l loan) {
	if !s.moved {
		s.grant(now)
	}
	if s.head != nil && (s.head.ready == nil || s.pledgedBehind(s.head)) {
		return
	}
	s.state.level, s.state.last = s.gcra.levelAt(&s.state, now)
	s.gcra.pourBack(&s.state, l)
	s.moved = s.waiting > 0
	s.leader.tell() // the leader knows the time; a caller that gives back may not
}

func (s *spacer) remove(sp *spot) {
	if sp.prev == nil {
		s.head = sp.next
	} else {
		sp.prev.next = sp.next
	}
	if sp.next == nil {
		s.tail = sp.prev
	} else {
		sp.next.prev = sp.prev
	}
	if sp.passed {
		s.before -= sp.n
	}
	if sp == s.leader {
		s.lead(sp.next)
	}
	sp.prev, sp.next = nil, nil
	s.waiting--
	s.waitingCost -= sp.n
}

// setRate changes the rate. Costs that were already poured in take as long as before, so a number of tokens no longer says how
// much of them to give back. Saved slack keeps its number of tokens.
func (s *spacer) setRate(now int64, g *gcra, slack int64) {
	s.grant(now)
	level, last := s.gcra.levelAt(&s.state, now)
	if level >= s.slack {
		wait := min(s.gcra.waitFor(level-s.slack), (maxLevel-slack)/g.a)
		level = slack + wait*g.a
	} else {
		level = slack - min((s.slack-level)/s.gcra.b, slack/g.b)*g.b
	}
	g.from = last + 1
	s.state = gcraState{level: level, last: last, taken: (s.state.taken + placeMask/2) & placeMask}
	s.gcra, s.slack = g, slack
	s.leader.tell()
}

// idle reports whether the spacer can be forgotten without loss.
func (s *spacer) idle(now int64) bool {
	level, _ := s.gcra.levelAt(&s.state, now)
	return s.waiting == 0 && level == 0
}
