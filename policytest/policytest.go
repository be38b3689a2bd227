package policytest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-go/spillway"
)

// Run checks the contract of the policies that newPolicy returns; nil options mean the defaults. Each call of newPolicy must
// return a new policy, and two of them must decide alike when they are asked alike. A policy with a method Close is
// closed when it has served.
//
// Run counts allocations, so t must not be parallel to other tests. An option out of its range fails the test.
func Run(t *testing.T, newPolicy func() spillway.Policy, o *Options) {
	t.Helper()
	runSuite(realT{t}, newPolicy, o)
}

// Options says what the suite cannot see from outside a policy. The zero Options are the defaults of [Run].
type Options struct {
	// Request returns the i-th request of a case; its Arrived is overwritten. It must be a pure function. If Request is
	// nil, the requests have the keys "", "a", "b" and "c" in turn and nothing else.
	Request func(i int) spillway.Request
	// Burst is how many requests are tried at one instant to learn how many a policy admits, so it should be well above
	// that number. If Burst is 0, it is 1024.
	Burst int
	// Idle is a pause after which a policy that ran a few good requests is as good as new: longer than its windows and its
	// open state. If Idle is 0, it is 48 hours, which pass at once.
	Idle time.Duration
	// InFlight reads from a policy how many requests it believes in flight. If InFlight is nil, the suite calls the
	// policy's method InFlight() if it has one, or looks for an integer field InFlight in what its method Stats()
	// returns. Without any, the suite compares what the policy admits with what a new policy admits.
	InFlight func(spillway.Policy) int64
	// Learns says that what the policy admits depends on how requests went long ago, as with a limit that adapts. Such a
	// policy is not compared with a new one after a history of its own, so it should show what it has in flight.
	Learns bool
	// CountsRefusals says that a refusal changes what is admitted later and is meant to, as in client-side throttling.
	CountsRefusals bool
	// Slack is the fraction of Burst, in 0..1, by which the numbers that two policies admit may differ. It is for policies
	// that decide by chance. If Slack is 0, they must be equal.
	Slack float64
}

// A realT lets the suite run on a *testing.T. The suite's own tests run it on a recorder instead.
type realT struct{ *testing.T }

func (t realT) run(name string, f func(tb)) {
	t.Run(name, func(t *testing.T) { f(realT{t}) })
}

func (t realT) bubble(f func()) {
	synctest.Test(t.T, func(*testing.T) { f() })
}
