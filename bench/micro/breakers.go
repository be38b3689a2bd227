package main

import (
	"time"

	"github.com/afex/hystrix-go/hystrix"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/go-kratos/aegis/circuitbreaker/sre"
	"github.com/sony/gobreaker/v2"
	zerobreaker "github.com/zeromicro/go-zero/core/breaker"
)

// breakers are the peers that watch the outcomes of calls. Breakers without states refuse at random, so some of their
// requests on the path "refuse" are admitted, and fail.
func breakers() []entry {
	return []entry{
		{"go-zero breaker", breaking, admit, always(goZeroBreaker)},
		{"go-zero breaker", breaking, refuse, failing(goZeroBreakerFailing)},
		{"aegis sre", breaking, admit, always(aegisSRE)},
		{"aegis sre", breaking, refuse, failing(aegisSREFailing)},
		{"failsafe-go circuitbreaker", breaking, admit, always(failsafeBreaker)},
		{"failsafe-go circuitbreaker", breaking, refuse, always(failsafeBreakerOpen)},
		{"gobreaker Execute", breaking, admit, always(func() op { return goBreakerExecute(false) })},
		{"gobreaker Execute", breaking, refuse, failing(func() op { return goBreakerExecute(true) })},
		{"gobreaker TwoStep", breaking, admit, always(goBreakerTwoStep)},
		{"gobreaker TwoStep", breaking, refuse, failing(goBreakerTwoStepOpen)},
		{"hystrix-go Do", breaking, admit, always(hystrixDo)},
		{"hystrix-go Do", breaking, refuse, failing(hystrixDoOpen)},
	}
}

// failing starts an op after enough failures for any breaker.
func failing(build func() op) func() (op, func(), error) {
	return func() (op, func(), error) {
		do := build()
		for range 2000 {
			do()
		}
		return do, nil, turned(do)
	}
}

func goZeroBreaker() op {
	brk := zerobreaker.NewBreaker()
	return func() bool {
		promise, err := brk.Allow()
		if err != nil {
			return false
		}
		promise.Accept()
		return true
	}
}

func goZeroBreakerFailing() op {
	brk := zerobreaker.NewBreaker()
	return func() bool {
		promise, err := brk.Allow()
		if err == nil {
			promise.Reject("down")
		}
		return err != nil
	}
}

func aegisSRE() op {
	brk := sre.NewBreaker()
	return func() bool {
		if brk.Allow() != nil {
			return false
		}
		brk.MarkSuccess()
		return true
	}
}

// aegisSREFailing marks refused requests as failed too, as its middleware does. Otherwise it would forget the outage.
func aegisSREFailing() op {
	brk := sre.NewBreaker()
	return func() bool {
		err := brk.Allow()
		brk.MarkFailed()
		return err != nil
	}
}

func failsafeBreaker() op {
	brk := circuitbreaker.NewWithDefaults[any]()
	return func() bool {
		if !brk.TryAcquirePermit() {
			return false
		}
		brk.RecordSuccess()
		return true
	}
}

func failsafeBreakerOpen() op {
	brk := circuitbreaker.NewBuilder[any]().WithDelay(time.Hour).Build()
	brk.Open()
	return func() bool { return !brk.TryAcquirePermit() }
}

var openForAnHour = gobreaker.Settings{Timeout: time.Hour}

func goBreakerExecute(down bool) op {
	brk := gobreaker.NewCircuitBreaker[struct{}](openForAnHour)
	call := func() (struct{}, error) { return struct{}{}, nil }
	if down {
		call = func() (struct{}, error) { return struct{}{}, errDown }
	}
	return func() bool {
		_, err := brk.Execute(call)
		if down {
			return err != nil && err != errDown //nolint:errorlint // it passes untouched, and a walk would be measured too
		}
		return err == nil
	}
}

func goBreakerTwoStep() op {
	brk := gobreaker.NewTwoStepCircuitBreaker[struct{}](openForAnHour)
	return func() bool {
		done, err := brk.Allow()
		if err != nil {
			return false
		}
		done(nil)
		return true
	}
}

func goBreakerTwoStepOpen() op {
	brk := gobreaker.NewTwoStepCircuitBreaker[struct{}](openForAnHour)
	return func() bool {
		done, err := brk.Allow()
		if err == nil {
			done(errDown)
		}
		return err != nil
	}
}

// hystrixRoom is how many calls hystrix may have in flight: it counts a call as ended some time after it has returned.
const hystrixRoom = 10_000

func hystrixDo() op {
	hystrix.ConfigureCommand("up", hystrix.CommandConfig{MaxConcurrentRequests: hystrixRoom, Timeout: 60_000})
	call := func() error { return nil }
	return func() bool { return hystrix.Do("up", call, nil) == nil }
}

// hystrixDoOpen shares its circuit between all its calls, because circuits have names and no constructor.
func hystrixDoOpen() op {
	hystrix.ConfigureCommand("down", hystrix.CommandConfig{
		MaxConcurrentRequests: hystrixRoom, SleepWindow: int(time.Hour.Milliseconds()),
	})
	call := func() error { return errDown }
	return func() bool {
		return hystrix.Do("down", call, nil) == hystrix.ErrCircuitOpen //nolint:errorlint // it passes untouched
	}
}
