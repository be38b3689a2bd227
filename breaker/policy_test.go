package breaker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/policytest"
)

func TestPolicyContract(t *testing.T) {
	for name, o := range map[string]breaker.Options{
		"default":     {Seed: 1},
		"short":       {Seed: 1, MinCalls: 4, Consecutive: 3, Probes: 2, OpenFor: time.Second, SlowCall: time.Millisecond},
		"calls":       {Seed: 1, WindowCalls: 10},
		"probe ratio": {Seed: 1, Probes: 8, ProbeFailureRate: 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			policytest.Run(t, func() spillway.Policy { return newBreaker(t, &o) }, nil)
		})
	}
	t.Run("ramp", func(t *testing.T) {
		policytest.Run(t, func() spillway.Policy {
			return newBreaker(t, &breaker.Options{Seed: 1, Ramp: time.Minute})
		}, &policytest.Options{CountsRefusals: true, Slack: 0.01})
	})
	t.Run("forced open", func(t *testing.T) {
		policytest.Run(t, func() spillway.Policy {
			b := newBreaker(t, nil)
			require.NoError(t, b.SetMode(time.Unix(0, 0), breaker.ForcedOpen))
			return b
		}, nil)
	})
}

func TestThrottleContract(t *testing.T) {
	policytest.Run(t, func() spillway.Policy {
		return newThrottle(t, &breaker.ThrottleOptions{Seed: 1})
	}, &policytest.Options{CountsRefusals: true, Slack: 0.1})
}

func TestKeyedContract(t *testing.T) {
	policytest.Run(t, func() spillway.Policy {
		return newKeyed(t, &breaker.KeyedOptions{MaxKeys: 2, New: func(string) (breaker.Member, error) {
			return breaker.New(&breaker.Options{Seed: 1})
		}})
	}, nil)
}

func newThrottle(tb testing.TB, o *breaker.ThrottleOptions) *breaker.Throttle {
	tb.Helper()
	th, err := breaker.NewThrottle(o)
	require.NoError(tb, err)
	return th
}

func newKeyed(tb testing.TB, o *breaker.KeyedOptions) *breaker.Keyed {
	tb.Helper()
	r, err := breaker.NewKeyed(o)
	require.NoError(tb, err)
	return r
}

// TestNothingIsAllocated shows it for every way through the policies, in one bucket and across them.
func TestNothingIsAllocated(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	failing := newThrottle(t, nil)
	now := time.Now()
	run := func(p spillway.Policy, r spillway.Request, o spillway.Outcome) {
		r.Arrived = now
		now = now.Add(time.Millisecond)
		if tk, err := p.Admit(context.Background(), r); err == nil {
			p.Done(r, tk, spillway.Result{Outcome: o, Latency: time.Millisecond})
		}
	}
	for range 1000 {
		run(failing, spillway.Request{}, spillway.Failure)
	}
	open := newBreaker(t, &breaker.Options{OpenFor: time.Hour, MaxOpen: time.Hour})
	for range 10 {
		run(open, spillway.Request{}, spillway.Failure)
	}
	probing := newBreaker(t, &breaker.Options{Consecutive: 1})
	run(probing, spillway.Request{}, spillway.Failure)
	now = now.Add(10 * time.Second)
	for name, tc := range map[string]struct {
		p spillway.Policy
		o spillway.Outcome
	}{
		"closed":         {newBreaker(t, nil), spillway.Success},
		"closed, calls":  {newBreaker(t, &breaker.Options{WindowCalls: 10}), spillway.Success},
		"closed, slow":   {newBreaker(t, &breaker.Options{SlowCall: time.Millisecond}), spillway.Success},
		"closed, failed": {newBreaker(t, &breaker.Options{FailureRate: off, Consecutive: off}), spillway.Failure},
		"open":           {open, spillway.Success},
		"half-open":      {probing, spillway.Ignored},
		"throttle":       {newThrottle(t, nil), spillway.Success},
		"throttled":      {failing, spillway.Failure},
		"ignored":        {newThrottle(t, nil), spillway.Ignored},
		"keyed":          {newKeyed(t, nil), spillway.Success},
	} {
		require.Zero(t, testing.AllocsPerRun(1000, func() { run(tc.p, spillway.Request{Key: "a"}, tc.o) }), name)
	}
}
