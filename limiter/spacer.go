package limiter

// A spacer is the rule of a Shaper: a queue in front of a leaky bucket. It is pure: the caller tells the time and holds the
// lock. Whom it has let pass, or wants to look at the clock again, it tells through their spot.
type spacer struct {
	gcra     *gcra // its burst is the greatest cost
	slack    int64 // ticks
	maxQueue int

	state       gcraState
	moved       bool  // tokens came back since the state was brought to a time: nobody passes earlier than now
	head, tail  *spot // who waits, in order
	waiting     int
	waitingCost int64
	leader      *spot // the first in the queue who looks at the clock, for all; nil if nobody does
	before      int64 // the cost of those before the leader
}

// A spot is a place in the queue of a spacer.
type spot struct {
	n          int64
	stamp      uint64        // for giveBack; set when granted, as took
	took       int64         // ns
	granted    bool          // its time has come
	passed     bool          // counted in before
	ready      chan struct{} // told when to look again; nil if nobody looks, as for a Reservation
	prev, next *spot
}

// tell makes the one who waits in sp look again.
func (sp *spot) tell() {
	if sp != nil && sp.ready != nil {
		select {
		case sp.ready <- struct{}{}:
		default:
		}
	}
}

// due returns when the next cost may be poured in.
func (s *spacer) due() int64 { return s.state.last + s.gcra.waitFor(s.state.level-s.slack) }

// pour lets a cost of n pass at an instant.
func (s *spacer) pour(at, n int64) (stamp uint64) {
	s.state.level, s.state.last = s.gcra.levelAt(&s.state, at)
	s.state.level += n * s.gcra.b
	return s.state.count(n)
}

// grant lets pass whose time has come by now, each at its own time: who looks late does not make the others later.
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

// leaderDue returns when the leader's time comes: after those before it, whom nobody wakes.
func (s *spacer) leaderDue() int64 {
	return s.state.last + s.gcra.waitFor(s.state.level+s.before*s.gcra.b-s.slack)
}

// lead makes the first from sp on who looks at the clock the leader.
func (s *spacer) lead(sp *spot) {
	for ; sp != nil && sp.ready == nil; sp = sp.next {
		sp.passed = true
		s.before += sp.n
	}
	s.leader = sp
}

// enqueue asks for a place in the queue at now, for one who would have to wait and not longer than maxWait. It returns how
// long that is, and the place; or nil, and why not.
func (s *spacer) enqueue(now, n, maxWait int64, ready chan struct{}) (sp *spot, wait int64, reason string) {
	wait = s.waitAt(now)
	switch {
	case wait > maxWait, s.state.level > maxLevel-(s.waitingCost+n)*s.gcra.b:
		return nil, wait, ReasonWait
	case s.waiting >= s.maxQueue:
		return nil, wait, ReasonFull
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

// waitAt returns how long one who comes at now would wait.
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

// cancel takes n off the cost of sp: it leaves the queue if that was all, or gives back what it was granted. If one behind it was
// told when to go, sp keeps its place, since that one would not notice that it has moved up.
func (s *spacer) cancel(now int64, sp *spot, n int64) {
	s.grant(now)
	switch {
	case sp.granted:
		s.giveBack(now, loan{n: n, rest: sp.n - n, took: sp.took, stamp: sp.stamp})
	case s.pledgedBehind(sp):
		if n == sp.n { // nobody looks any more
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

// giveBack returns what was poured in, so that all who wait move up when they look at the clock; or nothing, if a Reservation
// is among them.
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
	s.leader.tell() // it knows how late it is, which one who gives back need not
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

// setRate goes on at another rate. What was poured in takes as long as it would have, so it cannot be given back by the number of
// tokens any more; saved slack stays as many tokens.
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

// idle reports whether nothing is lost by forgetting the spacer.
func (s *spacer) idle(now int64) bool {
	level, _ := s.gcra.levelAt(&s.state, now)
	return s.waiting == 0 && level == 0
}
