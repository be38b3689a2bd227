package limiter

import "time"

// A State is what a limit could give at some instant.
type State struct {
	Limit     int64         // the most it gives at once
	Remaining int64         // tokens that could be taken now
	NextIn    time.Duration // how long until Remaining grows; 0 if it is at its Limit, the greatest Duration if never
	FullIn    time.Duration // how long until Remaining is at its Limit, if nobody takes any
}

// Stats is a snapshot of what a limit has done since it was made.
type Stats struct {
	Name       string
	Admitted   int64 // requests let through, reservations included
	Refused    int64 // requests refused for now
	Impossible int64 // requests refused because of a cost that can never pass
	Returned   int64 // admitted, and given back since: refused by a policy behind, cancelled, refunded
}

// A core is the rule of a limit. It is immutable; what changes is a state S, whose zero value is that of a limit nobody has
// used. The caller holds whatever lock guards the state.
type core[S any] interface {
	// take takes n tokens, at least 1 and at most max, now or in at most maxWait ns. It returns the wait, and a stamp for
	// giveBack, whose uppermost bit is 0; or false and how long it takes until it could.
	take(s *S, m moment, n, maxWait int64) (wait int64, stamp uint64, ok bool)
	// giveBack returns the tokens of a loan as far as time has not returned them already. It may return fewer, and never so many
	// that more pass than if they had not been taken, counted when those who wait have been told to go.
	giveBack(s *S, m moment, l loan)
	peek(s *S, m moment) State
	// idle reports whether the state is as good as new.
	idle(s *S, m moment) bool
	max() int64
	window() time.Duration
	// follows reports whether adopt can make its own what old has left.
	follows(old core[S]) bool
	// adopt turns a state of old into one of its own.
	adopt(s *S, m moment, old core[S])
	// since returns the rule as it is for states that adopt it at an instant.
	since(ns int64) core[S]
	// heir returns the state of a key that may have taken all that was taken from s. The stamps of an heir are not those of
	// another heir, so that those of a state that was forgotten mean nothing to the next one of the key.
	heir(s *S, m moment) S
}

// A loan is what comes back of the tokens taken with a stamp.
type loan struct {
	n, rest int64  // tokens that come back, and that are kept
	took    int64  // ns at which they were taken, or earlier
	stamp   uint64 // what take returned
}

// noStamp stands for a stamp that nobody has kept. It is no Ticket that a Policy may issue.
const noStamp = ^uint64(0)
