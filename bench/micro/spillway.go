package main

import (
	"context"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/shedder"
)

// alwaysHot is a CPU threshold that any usage reaches. It makes a shedder see an overload, as is done for the peers.
const alwaysHot = 1e-9

// spillwayEntries are the policies as users run them: behind a Gate, which reads the clock.
func spillwayEntries() []entry {
	return []entry{
		{"spillway shedder", shedding, admit, behindGate(func() (spillway.Policy, error) { return shedder.New(nil) })},
		{"spillway shedder, overloaded", shedding, admit, behindGate(func() (spillway.Policy, error) {
			return shedder.New(&shedder.Options{CPUThreshold: alwaysHot})
		})},
		{"spillway shedder", shedding, refuse, refusingShedder},
		{"spillway breaker", breaking, admit, behindGate(func() (spillway.Policy, error) { return breaker.New(nil) })},
		{"spillway breaker", breaking, refuse, afterFailures(10, func() (spillway.Policy, error) {
			return breaker.New(&breaker.Options{OpenFor: time.Hour, MaxOpen: time.Hour})
		})},
		{"spillway throttle", breaking, admit, behindGate(func() (spillway.Policy, error) { return breaker.NewThrottle(nil) })},
		{"spillway throttle", breaking, refuse, afterFailures(1e5, func() (spillway.Policy, error) {
			return breaker.NewThrottle(&breaker.ThrottleOptions{MaxRefusal: 1, ProbeEvery: breaker.Off, RecoverAfter: breaker.Off})
		})},
	}
}

func behindGate(build func() (spillway.Policy, error)) func() (op, func(), error) {
	return func() (op, func(), error) {
		policy, err := build()
		if err != nil {
			return nil, nil, err
		}
		gate, ctx := spillway.New(policy), context.Background()
		return func() bool {
			permit, err := gate.Enter(ctx, spillway.Request{})
			if err != nil {
				return false
			}
			permit.Done(spillway.Success)
			return true
		}, nil, nil
	}
}

// refusal returns an op that is refused; requests that are admitted anyway end as failures.
func refusal(gate *spillway.Gate) op {
	ctx := context.Background()
	return func() bool {
		permit, err := gate.Enter(ctx, spillway.Request{})
		if err != nil {
			return true
		}
		permit.Done(spillway.Failure)
		return false
	}
}

// refusingShedder is overloaded and full.
func refusingShedder() (op, func(), error) {
	shed, err := shedder.New(&shedder.Options{CPUThreshold: alwaysHot, MinLimit: 1, MaxLimit: 1})
	if err != nil {
		return nil, nil, err
	}
	gate := spillway.New(shed)
	do := func() bool {
		_, err := gate.Enter(context.Background(), spillway.Request{}) // a probe that is admitted stays in flight
		return err != nil
	}
	return do, nil, turned(do)
}

// afterFailures starts a policy after the given number of failures.
func afterFailures(n int, build func() (spillway.Policy, error)) func() (op, func(), error) {
	return func() (op, func(), error) {
		policy, err := build()
		if err != nil {
			return nil, nil, err
		}
		do := refusal(spillway.New(policy))
		for range n {
			do()
		}
		return do, nil, turned(do)
	}
}
