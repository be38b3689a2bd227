// Package shedder refuses what a service cannot carry, so that it keeps doing what it can.
//
//	shed, err := shedder.New(nil) // needs no configuration, no goroutine and no Close
//	if err != nil {
//		return err
//	}
//	guard := httpgate.Handler(spillway.New(shed), nil)
//	return http.ListenAndServe(addr, guard(mux))
//
// A [Shedder] is a [spillway.Policy]. It admits everything until the service is overloaded, and then refuses a request if
//
//	in flight > pass × rt + allowance
//
// where pass is the greatest rate of successes seen lately and rt the latency of an undisturbed request: by Little's law
// their product is how many requests the service can usefully have inside at once. The allowance is those that it answers
// within [Options.MaxDelay], which follows from [Options.SLO] if there is one; it shrinks while the CPU is full.
//
// # Overloaded
//
// The service is overloaded while the CPU that its process may use is used up (the smoothed usage, or several raw samples
// in a row, reach [Options.CPUThreshold]), while runnable goroutines wait long for a processor, or while requests pile up
// inside though the CPU is idle. It stays so for [Options.CoolDown] after the last such reading; then the limit opens by a
// ramp. [Options.Signals] adds signs of your own. If a sensor cannot be read, panics, or says for 3 s what it said before,
// the Shedder goes by the others, and says so in its [Stats].
//
// # What it learns, and when
//
// Only successes count, and only calm teaches rt: a limit that learnt its latency in the overload would justify the
// overload. Where something else than the CPU is used up, the limit is moved by whether more inside yield more answers.
package shedder
