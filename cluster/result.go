package cluster

import (
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// A Result is the answer of a limit. The zero Result denies.
type Result struct {
	// State is the state of the rule that decided: the one that refused, or the one with the smallest part left.
	limiter.State

	Allowed    bool
	Taken      int64         // tokens taken
	RetryAfter time.Duration // time until the same call can pass; 0 if it passed, or if the time is unknown
	Rule       string        // name of that rule
	Source     Source        // source of the decision
	// Err is a *[RedisError] that says why Redis did not decide, if it was asked or should have been. Otherwise it is
	// nil.
	Err error
}
