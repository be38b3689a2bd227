// Package policytest checks that a [spillway.Policy] keeps the contract, as testing/slogtest does for a slog.Handler.
//
//	func TestContract(t *testing.T) {
//		policytest.Run(t, func() spillway.Policy { return mypolicy.New(10) }, nil)
//	}
//
// Each rule is a separate subtest, and a failure prints why the rule matters. Time in the suite is data: each case runs
// once from a present-day date and once from the Unix epoch, and no real time passes.
//
// Use a policy that refuses easily, with a small limit or a short history. If a policy never refuses, the rules about
// refusals are skipped, with the reason. Call Run once for each typical configuration of the policy.
package policytest
