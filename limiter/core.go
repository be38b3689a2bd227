package limiter

// Where to read on: limiter.go is what callers see, rule.go how a rule becomes a limit, and limit.go the Policy around a core. Each
// rule has a file with its core, next to bucket.go: gcra.go. keyed.go keeps states of a core in a table. shaper.go and queue.go
// are thin shells around the pure spacer.go and waitlist.go.

import "time"

// A core is the rule of a limit. It is immutable; what changes is a state S, whose zero value is that of a limit nobody has
// used. The caller holds whatever lock guards the state.
type core[S any] interface {
	// take takes n tokens, at least 1 and at most max, now or in at most maxWait ns. It returns the wait, and a stamp for
	// giveBack, whose uppermost bit is 0; or false and how long it takes until it could.
	take(s *S, m moment, n, maxWait int64) (wait int64, stamp uint64, ok bool)
	// giveBack returns the tokens of a loan as far as time has not returned them already. It may return fewer.
	// Never more tokens pass than if the loan had not been taken, where a reservation passes at its promised time.
	giveBack(s *S, m moment, l loan)
	peek(s *S, m moment) State
	// idle reports whether the state is as good as new.
	idle(s *S, m moment) bool
	max() int64
	window() time.Duration
	// follows returns an error that names what cannot change if adopt cannot make its own what old has left.
	follows(old core[S]) error
	// adopt turns a state of old into one of its own.
	adopt(s *S, m moment, old core[S])
	// since returns the rule as it is for states that adopt it at an instant: one state, or any if s is nil.
	since(ns int64, s *S) core[S]
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

// noStamp stands for an unknown stamp. It is not a valid Ticket.
const noStamp = ^uint64(0)
