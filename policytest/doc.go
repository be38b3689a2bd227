// Package policytest checks that a [spillway.Policy] keeps the contract, as testing/slogtest does for a slog.Handler.
//
//	func TestContract(t *testing.T) {
//		policytest.Run(t, func() spillway.Policy { return mypolicy.New(10) }, nil)
//	}
//
// Each rule is a subtest of its own, and a failure prints why the rule matters. Time in the suite is data: it starts now
// and then, once at a date of today and once at the Unix epoch, and passes without being waited for.
//
// Hand in a policy that is easily made to refuse, with a small limit or a short history: a rule about refusals is skipped,
// with the reason, for a policy that has not refused. One Run for each way a policy may be set up is better than one Run.
package policytest
