// Package breaker stops calling a dependency that does not answer, and finds out cheaply when it answers again.
//
//	brk, err := breaker.New(nil) // opens when half of at least 20 calls in 10 s fail, or 10 in a row
//	if err != nil {
//		return err
//	}
//	gate := spillway.New(brk)
//	err = spillway.Do(ctx, gate, spillway.Request{}, callDependency)
//	if errors.Is(err, spillway.ErrRejected) {
//		return fallback() // the dependency was not called
//	}
//
// There are two kinds, and both are a [spillway.Policy]. A [Breaker] has three states: it lets everything through while
// closed, nothing while open, and a few probes while half-open. A [Throttle] has none: it refuses a share of the calls
// that grows with the share that fails. Take a Breaker for a dependency that is up or down, and a Throttle for one that is
// often half up, such as an overloaded pool. A [Keyed] keeps one of either for each key: a host, a route, a tenant.
//
// # What counts
//
// [spillway.Success] is a success; [spillway.Failure] and [spillway.Dropped] are failures; [spillway.Ignored] and
// [spillway.Refused] say nothing. An outcome counts when it arrives and not when its call began, so calls that time out
// slower than the window turns still open a Breaker. A call that hangs counts as slow from [Options.SlowCall] on, before
// it returns.
//
// # Time
//
// Nothing here reads a clock while a request passes: the time is [spillway.Request.Arrived] and the latency that the
// caller reports. So the same code runs in tests and simulations. Methods that need the time have a form that takes it,
// such as [Breaker.StatsAt] for [Breaker.Stats].
package breaker
