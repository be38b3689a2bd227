package limiter

// Where to read next: limiter.go has the interface for callers, rule.go turns a rule into a limit, and limit.go has the
// Policy around a core. Each rule has a file with its core, next to bucket.go: gcra.go. keyed.go keeps states of a core
// in a table. shaper.go and queue.go are thin shells around the pure spacer.go and waitlist.go.

import "time"

// A core is the rule of a limit. It is immutable. All changes are in a state S, whose zero value is the state of an
// unused limit. The caller holds the lock that guards the state.
type core[S any] interface {
	// take takes n tokens, at least 1 and at most max, now or in at most maxWait ns. It returns the wait and a stamp
	// for giveBack, whose uppermost bit is 0. If it cannot, it returns false and the time until it could.
	take(s *S, m moment, n, maxWait int64) (wait int64, stamp uint64, ok bool)
	// giveBack returns the tokens of a loan that have not come back with time. It may return fewer. It never lets more tokens
	// pass than if the loan had not been taken, where a reservation passes at its promised time.
	giveBack(s *S, m moment, l loan)
	peek(s *S, m moment) State
	// idle reports whether the state equals a new one.
	idle(s *S, m moment) bool
	max() int64
	window() time.Duration
	// follows returns an error if adopt cannot take over the states of old. The error names the field that cannot
	// change.
	follows(old core[S]) error
	// adopt turns a state of old into a state of this core.
	adopt(s *S, m moment, old core[S])
	// since returns the rule for states that adopt it at an instant: for the state s, or for any state if s is nil.
	since(ns int64, s *S) core[S]
	// heir returns the state of a key that may have taken all tokens that were taken from s. Every heir has its own
	// stamps, so that a stamp of a forgotten state means nothing to the next state of the key.
	heir(s *S, m moment) S
}

// A loan describes tokens to give back, out of those taken with a stamp.
type loan struct {
	n, rest int64  // tokens that come back, and that are kept
	took    int64  // ns at which they were taken, or earlier
	stamp   uint64 // what take returned
}

// noStamp stands for an unknown stamp. It is not a valid Ticket.
const noStamp = ^uint64(0)
