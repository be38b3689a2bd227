package policytest

import (
	"time"

	"github.com/spillway-go/spillway"
)

// A state is a history after which a policy may refuse. Two new policies end up in the same state after it.
type state struct {
	name  string
	reach func(*driver)
}

// states returns the histories after which the rules about refusals are checked: a limit refuses when it is fresh, a
// breaker after failures, and a half-open breaker after failures and a pause.
func states() []state {
	return []state{
		{"a new policy", func(*driver) {}},
		{"a policy that saw failures", fail},
		{"a policy that saw failures and a pause", func(d *driver) {
			fail(d)
			d.sleep(d.c.o.Idle)
		}},
	}
}

func fail(d *driver) {
	d.serve(400, 10*time.Millisecond, spillway.Failure, spillway.Dropped)
}

// eachState calls f for every base and state.
func eachState(f func(base, state)) {
	for _, b := range bases() {
		for _, s := range states() {
			f(b, s)
		}
	}
}

// reach returns a driver of a new policy in state s.
func (c *check) reach(b base, s state) *driver {
	d := c.drive(b)
	s.reach(d)
	return d
}

// neverRefused ends a case about refusals for a policy that never refused.
func (c *check) neverRefused() {
	c.skipf("the policy admitted %d requests at one instant, new and after failures, so this rule was not checked: hand in one"+
		" with a smaller limit, or raise Options.Burst", c.o.Burst)
}
