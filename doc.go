// Package spillway keeps a service working at full capacity when it gets more requests than it can serve.
//
//	gate := spillway.New(limit, shed) // asks in order: cheap and easy to give back first
//	permit, err := gate.Enter(ctx, spillway.Request{Key: tenant})
//	if err != nil {
//		return err // errors.Is(err, spillway.ErrRejected): answer at once, no work was done
//	}
//	defer permit.Done(spillway.Failure) // covers panics; the first Done wins
//	serve()
//	permit.Done(spillway.Success)
//
// A [Policy] decides about one request and learns from how it went. The adaptive shedder, the breakers and the limits
// of this module are policies, and so is any type of yours that passes policytest. A [Gate] asks up to eight of them in
// order. If one refuses, the Gate gives back to the policies before it, and [Gate.Enter] returns the refusal, a shared
// *[Rejection]. If all admit, the caller holds a [Permit] and owes it one [Permit.Done].
//
// Most services do not call Enter themselves: middleware/httpgate wraps a net/http handler.
//
// # Order
//
// Put policies that are cheap to ask and easy to give back first, and the shedder outside the breaker: rate limit,
// concurrency, shedder, breaker. A breaker outside the shedder would count local refusals as failures of the service.
//
// # Time
//
// No policy reads the clock: the arrival and the latency of a request are passed to it. A policy therefore runs
// unchanged in a test or a simulation, with [Request.Arrived] and [Permit.DoneAt] as the clock.
//
// # Cost
//
// Entering, refusing and finishing allocate nothing. A Gate takes no lock that all requests share, and neither do shedders
// and breakers. A static limit holds one for a few nanoseconds, because all requests take from the same state.
package spillway
