package policytest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-go/spillway"
)

// Run checks the contract of the policies that newPolicy returns; nil options mean the defaults. Each call of newPolicy
// must return a new policy, and two policies must make the same decisions about the same requests. A policy with a
// Close method is closed after use.
//
// Run counts allocations, so t must not be parallel to other tests. An option out of its range fails the test. Under the race
// detector, Run counts no allocations and plays a third of each random history.
func Run(t *testing.T, newPolicy func() spillway.Policy, o *Options) {
	t.Helper()
	runSuite(realT{t}, newPolicy, o)
}

// Options tells the suite facts about a policy that it cannot see from outside. The zero Options are the defaults of
// [Run].
type Options struct {
	// Request returns the i-th request of a case; its Arrived is overwritten. It must be a pure function. If Request is
	// nil, the requests have the keys "", "a", "b" and "c" in turn and nothing else.
	Request func(i int) spillway.Request
	// Burst is how many requests are tried at one instant to learn how many a policy admits, so it should be well above
	// that number. If Burst is 0, it is 1024.
	Burst int
	// Idle is a pause after which a policy that ran a few good requests behaves like a new one. It must be longer than
	// its windows and its open state. If Idle is 0, it is 48 hours, which pass at once.
	Idle time.Duration
	// InFlight reads the number of requests that a policy counts as in flight. If InFlight is nil, the suite calls the
	// policy's method InFlight() if it has one, or looks for an integer field InFlight in the result of its method
	// Stats(). Otherwise, the suite compares the number of requests that the policy admits with the number that a new policy admits.
	InFlight func(spillway.Policy) int64
	// Learns says that the decisions of the policy depend on outcomes of long ago, as with an adaptive limit. The suite
	// does not compare such a policy with a new one after a history, so it should show its requests in flight.
	Learns bool
	// CountsRefusals says that refusals change later decisions by design, as in client-side throttling.
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
