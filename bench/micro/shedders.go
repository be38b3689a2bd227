package main

import (
	aegislimit "github.com/go-kratos/aegis/ratelimit"
	"github.com/go-kratos/aegis/ratelimit/bbr"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/zeromicro/go-zero/core/load"
)

// never is a CPU threshold, in thousandths, that no usage reaches.
const never = 1e6

// shedders are the peers that watch the load. Those that use the CPU are measured at rest, which is cheaper, and
// overloaded.
func shedders() []entry {
	return []entry{
		{"go-zero shedder", shedding, admit, goZeroShedder(never)},
		{"go-zero shedder, overloaded", shedding, admit, goZeroShedder(0)},
		{"go-zero shedder", shedding, refuse, goZeroShedderRefusing},
		{"aegis bbr", shedding, admit, aegisBBR(never)},
		{"aegis bbr, overloaded", shedding, admit, aegisBBR(0)},
		{"aegis bbr", shedding, refuse, aegisBBRRefusing},
		{"failsafe-go adaptivelimiter", shedding, admit, always(func() op {
			limiter := adaptivelimiter.NewWithDefaults[any]()
			return func() bool {
				permit, ok := limiter.TryAcquirePermit()
				if ok {
					permit.Record()
				}
				return ok
			}
		})},
		{"failsafe-go adaptivelimiter", shedding, refuse, failsafeLimiterRefusing},
	}
}

func goZeroShedder(threshold int64) func() (op, func(), error) {
	return always(func() op {
		shed := load.NewAdaptiveShedder(load.WithCpuThreshold(threshold))
		return func() bool {
			promise, err := shed.Allow()
			if err != nil {
				return false
			}
			promise.Pass()
			return true
		}
	})
}

// goZeroShedderRefusing holds more requests than go-zero allows while it has seen none succeed: ten.
func goZeroShedderRefusing() (op, func(), error) {
	shed := load.NewAdaptiveShedder(load.WithCpuThreshold(0))
	do := func() bool {
		promise, err := shed.Allow()
		if err == nil {
			promise.Fail()
		}
		return err != nil
	}
	var held []load.Promise
	for range 400 {
		promise, err := shed.Allow()
		if err != nil {
			return nil, nil, err
		}
		held = append(held, promise)
	}
	for _, promise := range held[:200] { // the average of those in flight moves only when one ends
		promise.Fail()
	}
	return do, nil, turned(do)
}

func aegisBBR(threshold int64) func() (op, func(), error) {
	return always(func() op {
		limiter := bbr.NewLimiter(bbr.WithCPUThreshold(threshold))
		return func() bool {
			done, err := limiter.Allow()
			if err != nil {
				return false
			}
			done(aegislimit.DoneInfo{})
			return true
		}
	})
}

// aegisBBRRefusing holds more requests than aegis allows while it has seen none succeed.
func aegisBBRRefusing() (op, func(), error) {
	limiter := bbr.NewLimiter(bbr.WithCPUThreshold(0))
	do := func() bool {
		_, err := limiter.Allow() // admitted requests stay in flight
		return err != nil
	}
	return do, nil, turned(do)
}

func failsafeLimiterRefusing() (op, func(), error) {
	limiter := adaptivelimiter.NewBuilder[any]().WithLimits(1, 1, 1).Build()
	do := func() bool {
		_, ok := limiter.TryAcquirePermit() // the first stays inside
		return !ok
	}
	return do, nil, turned(do)
}
