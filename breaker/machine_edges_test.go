package breaker_test

import (
	"context"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
)

// TestAskingForTheStateChangesNothing shows that asking for the state changes nothing, and takes time into account.
func TestAskingForTheStateChangesNothing(t *testing.T) {
	g, b := newBreakerRig(t, &breaker.Options{Consecutive: 1, Jitter: off, Probes: 1})
	require.Equal(t, breaker.Closed, b.Stats().State, "before the first request")
	g.run("F")
	require.Equal(t, breaker.HalfOpen, b.StatsAt(t0.Add(time.Hour)).State)
	require.Equal(t, breaker.Open, b.StatsAt(t0.Add(time.Second)).State)
	g.run("+1s rej=4s")
	require.Equal(t, breaker.HalfOpen, b.StatsAt(t0.Add(time.Hour)).State)
	g.run("rej=4s +4s >p")
	require.Equal(t, breaker.Open, b.StatsAt(g.now.Add(6*time.Second)).State, "the probe is lost")
	g.run("p:S =closed")
}

// TestServerMayAskForPeace shows what the Retry-After of a server does. The call that brings it may be from before.
func TestServerMayAskForPeace(t *testing.T) {
	o := breaker.Options{Consecutive: 1, Jitter: off, MaxOpen: 30 * time.Second}
	for name, script := range map[string]string{
		"lengthens the open time":    ">a >b F +1s a:I~10s rej=10s b:F~2s rej=10s +10s =half-open",
		"up to the cap":              ">a F +1s a:D~2540400h rej=29s",
		"before it opens":            "S~20s =closed +2s F rej=18s",
		"with what opens it":         "F~20s rej=20s",
		"with a failed probe":        "F +5s F~20s rej=20s",
		"less than it would be":      "F~2s rej=5s",
		"while half-open":            ">a F +5s >p a:I~20s =half-open p:F rej=20s",
		"while the probe succeeds":   "F +5s S S~20s S =closed F rej=20s",
		"never, or long ago":         ">a F~0s a:R~10s rej=5s +5s F~-5s rej=10s",
		"of a call that did not run": ">a F a:R~10s rej=5s +5s R~20s F rej=10s",
	} {
		t.Run(name, func(t *testing.T) {
			g, _ := newBreakerRig(t, &o)
			g.run(script)
		})
	}
	t.Run("up to the cap of the day", func(t *testing.T) {
		g, b := newBreakerRig(t, &o)
		g.run("S~20s")
		require.NoError(t, b.Tune(breaker.Options{Consecutive: 1, Jitter: off, MaxOpen: 10 * time.Second}))
		g.run("F rej=10s")
	})
}

func TestRampLetsCallsReturnByAndBy(t *testing.T) {
	g, b := newBreakerRig(t, &breaker.Options{Jitter: off, Probes: 1, Ramp: 3 * time.Second, MinCalls: 20})
	g.run("F*10 +5s S =closed")
	for i, want := range []int{10, 25, 50, 100} {
		admitted := 0
		for range 100 {
			if g.call(spillway.Success) {
				admitted++
			}
		}
		require.Equal(t, want, admitted, i)
		require.InDelta(t, float64(want)/100, b.StatsAt(g.now).Share, 1e-9)
		g.now = g.now.Add(time.Second)
	}
}

// TestRampIsArmed shows that the rules hold during the ramp, and what a refusal says.
func TestRampIsArmed(t *testing.T) {
	g, b := newBreakerRig(t, &breaker.Options{Consecutive: 3, Jitter: off, Probes: 1, Ramp: 3 * time.Second})
	g.run("F*3 +5s S =closed S rej=3s +1s rej=2s")
	_, err := g.admit()
	require.Equal(t, "closing", err.(*spillway.Rejection).Reason)
	for b.StatsAt(g.now).State == breaker.Closed {
		g.call(spillway.Failure)
	}
	g.run("rej=10s")
}

func TestModes(t *testing.T) {
	g, b := newBreakerRig(t, &breaker.Options{Consecutive: 2, Jitter: off})
	set := func(m breaker.Mode) {
		require.NoError(t, b.SetMode(g.now, m))
		require.Equal(t, m, b.StatsAt(g.now).Mode)
	}
	g.run(">old")
	set(breaker.ForcedOpen)
	g.run("=open rej=0s +1000h =open rej=0s old:F")
	_, err := g.admit()
	require.Equal(t, "forced-open", err.(*spillway.Rejection).Reason)
	require.Zero(t, b.StatsAt(g.now).NextProbe)
	set(breaker.ForcedClosed)
	g.run("F*100 =closed")
	require.EqualValues(t, 100, b.StatsAt(g.now).Failures)
	set(breaker.Auto)
	require.Zero(t, countsOf(b.StatsAt(g.now)))
	g.run("F =closed F =open")
	set(breaker.ForcedClosed)
	g.run("=closed S")
	require.ErrorContains(t, b.SetMode(time.Now(), "ajar"), `mode must be auto, forced-open, forced-closed or metrics-only, got "ajar"`)
	require.EqualValues(t, 1, b.StatsAt(g.now).Stale)
}

func TestMetricsOnlyTellsOnce(t *testing.T) {
	var told []breaker.Event
	g, b := newBreakerRig(t, &breaker.Options{
		Consecutive: off, MinCalls: 5, OnEvent: func(e breaker.Event) { told = append(told, e) },
	})
	require.NoError(t, b.SetMode(g.now, breaker.MetricsOnly))
	g.run("F F F S S F F F S =closed +9s F")
	require.Equal(t, []breaker.Event{{
		Policy: "breaker", Time: t0, From: breaker.Closed, To: breaker.Closed, Reason: "failure rate", WouldOpen: true,
	}}, told)
	g.run("+1s F*10")
	require.Len(t, told, 2, "once for each window")
}

// TestStatesByHand shows that an operator moves a Breaker to any state, and that outcomes decide again from there.
func TestStatesByHand(t *testing.T) {
	var told []breaker.Event
	g, b := newBreakerRig(t, &breaker.Options{Consecutive: 2, Jitter: off, Probes: 1, OnEvent: func(e breaker.Event) { told = append(told, e) }})
	set := func(s breaker.State, d time.Duration) { require.NoError(t, b.SetState(g.now, s, d)) }
	g.run("S >a")
	set(breaker.Open, 30*time.Second)
	require.Equal(t, []breaker.Event{{
		Policy: "breaker", Time: g.now, From: breaker.Closed, To: breaker.Open, Reason: "by hand", OpenFor: 30 * time.Second,
	}}, told)
	g.run("=open rej=30s a:F +29s rej=1s +1s =half-open S =closed")
	set(breaker.Open, 0)
	g.run("rej=5s +1s")
	set(breaker.Open, time.Second)
	g.run("rej=1s +1s =half-open F =open rej=5s") // it did not lengthen the next open time
	set(breaker.HalfOpen, 0)
	g.run("=half-open >b rej b:S =closed")
	require.NoError(t, b.SetMode(g.now, breaker.ForcedOpen))
	set(breaker.HalfOpen, 0)
	require.Equal(t, breaker.Auto, b.StatsAt(g.now).Mode)
	g.run("F =open")
	set(breaker.Closed, 0)
	g.run("S =closed F S F =closed F =open")

	for want, c := range map[string]struct {
		s breaker.State
		d time.Duration
	}{
		`breaker: SetState: state must be closed, half-open or open, got "ajar"`:                       {s: "ajar"},
		"breaker: SetState: d must be 0, or for the state open at most a year, got -1ns for open":      {s: breaker.Open, d: -1},
		"breaker: SetState: d must be 0, or for the state open at most a year, got 1s for half-open":   {s: breaker.HalfOpen, d: time.Second},
		"breaker: SetState: d must be 0, or for the state open at most a year, got 8761h0m0s for open": {s: breaker.Open, d: 8761 * time.Hour},
	} {
		s := b.StatsAt(g.now)
		require.EqualError(t, b.SetState(g.now, c.s, c.d), want)
		require.Equal(t, s, b.StatsAt(g.now), "an error changes nothing")
	}
	require.Error(t, new(breaker.Breaker).SetState(g.now, breaker.Open, 0))
}

func TestResetForgets(t *testing.T) {
	g, b := newBreakerRig(t, &breaker.Options{Consecutive: 2, Jitter: off, Probes: 1})
	reset := func() {
		_ = b.SetState(g.now, breaker.Closed, 0)
		s := b.StatsAt(g.now)
		require.Equal(t, breaker.Closed, s.State)
		require.Zero(t, countsOf(s))
		require.Zero(t, s.Consecutive)
		require.Zero(t, s.Reopenings)
	}
	g.run("F >a")
	reset()
	g.run("F a:F =closed F rej=5s")
	reset()
	g.run("F*2 rej=5s +5s >p")
	reset()
	g.run("p:F =closed S")
	require.EqualValues(t, 2, b.StatsAt(g.now).Stale)
	require.NoError(t, b.SetMode(g.now, breaker.ForcedOpen))
	reset()
	require.Equal(t, breaker.Auto, b.StatsAt(g.now).Mode)
}

func TestEventsTellAll(t *testing.T) {
	var told []breaker.Event
	var policy string
	g, b := newBreakerRig(t, &breaker.Options{
		Consecutive: 1, Jitter: off, Probes: 1, OnEvent: func(e breaker.Event) {
			policy, e.Policy = e.Policy, ""
			told = append(told, e)
		},
	})
	g.run("F +5s F +15s >lost +1h S")
	at := t0.Add
	require.Equal(t, []breaker.Event{
		{Time: t0, From: breaker.Closed, To: breaker.Open, Reason: "consecutive failures", OpenFor: 5 * time.Second},
		{Time: at(5 * time.Second), From: breaker.Open, To: breaker.HalfOpen, Reason: "open time over"},
		{Time: at(5 * time.Second), From: breaker.HalfOpen, To: breaker.Open, Reason: "probe failed", OpenFor: 10 * time.Second},
		{Time: at(15 * time.Second), From: breaker.Open, To: breaker.HalfOpen, Reason: "open time over"},
		{Time: at(25 * time.Second), From: breaker.HalfOpen, To: breaker.Open, Reason: "probe lost", OpenFor: 20 * time.Second},
		{Time: at(45 * time.Second), From: breaker.Open, To: breaker.HalfOpen, Reason: "open time over"},
		{Time: at(time.Hour + 20*time.Second), From: breaker.HalfOpen, To: breaker.Closed, Reason: "probes succeeded"},
	}, told)
	require.Equal(t, "breaker", policy)
	require.Equal(t, map[string]int64{"consecutive failures": 1, "probe failed": 1, "probe lost": 1}, b.StatsAt(g.now).Openings)
}

// TestListenerMayPanic shows that later events are delivered, also if the listener ends its goroutine.
func TestListenerMayPanic(t *testing.T) {
	told := 0
	g, b := newBreakerRig(t, &breaker.Options{Consecutive: 1, Jitter: off, Probes: 1, OnEvent: func(breaker.Event) {
		told++
		panic("listener")
	}})
	g.run("F +5s S F")
	require.Equal(t, 4, told)
	require.EqualValues(t, 4, b.StatsAt(g.now).Panics)
}

func TestListenerMayGoexit(t *testing.T) {
	told := make(chan breaker.State, 10)
	g, b := newBreakerRig(t, &breaker.Options{Consecutive: 1, Jitter: off, OnEvent: func(e breaker.Event) {
		told <- e.To
		if e.To == breaker.Open {
			runtime.Goexit()
		}
	}})
	var wg sync.WaitGroup
	wg.Go(func() { g.call(spillway.Failure) })
	wg.Wait()
	_ = b.SetState(g.now, breaker.Closed, 0)
	require.Equal(t, breaker.Open, <-told)
	require.Equal(t, breaker.Closed, <-told)
}

func TestTune(t *testing.T) {
	g, b := newBreakerRig(t, &breaker.Options{Consecutive: 5, Jitter: off, Window: 20 * time.Second})
	g.run("F*3 >a")
	require.NoError(t, b.Tune(breaker.Options{Consecutive: 4, Jitter: off, SlowCall: time.Second, OpenFor: 7 * time.Second}))
	g.run("=closed a:F =open rej=7s")
	require.EqualValues(t, 0, b.StatsAt(g.now).Stale, "a call under way when it was tuned")
	require.NoError(t, b.Tune(breaker.Options{}))
	g.run("rej=7s +7s =half-open >a >b >c rej")
	require.NoError(t, b.Tune(breaker.Options{Probes: 4}))
	g.run(">d rej a:S b:S c:S =half-open d:S =closed")
	for want, o := range map[string]breaker.Options{
		"Window cannot change from 20s, got 30s": {Window: 30 * time.Second},
		"Buckets cannot change from 10, got 5":   {Buckets: 5},
		"WindowCalls cannot change from 0":       {WindowCalls: 5},
		"Seed cannot change":                     {Seed: 5},
		"Consecutive must be":                    {Consecutive: -2},
		"SlowCall must be at most":               {SlowCall: 199 * time.Second},
	} {
		require.ErrorContains(t, b.Tune(o), want)
	}
}

// TestRequestsMayArriveOutOfOrder shows that what came earlier than others is no worse for it.
func TestRequestsMayArriveOutOfOrder(t *testing.T) {
	g, b := newBreakerRig(t, &breaker.Options{Consecutive: 1, Jitter: off})
	g.now = t0.Add(time.Hour)
	g.run("S >a")
	g.now = t0
	g.run("S I >b >c c:S F rej=5s")
	g.now = t0.Add(time.Hour)
	g.run("=half-open a:S b:S S S S =closed +10s F")
	g.now = t0
	g.run("rej=5s") // not an hour more
	g.now = t0.Add(time.Hour)
	require.EqualValues(t, 0, b.StatsAt(g.now).InFlight)
}

// TestFailuresAfterALongPauseAllCount shows that the first ones to meet a new bucket do not wipe each other's outcomes.
func TestFailuresAfterALongPauseAllCount(t *testing.T) {
	for range 50 {
		b := newBreaker(t, &breaker.Options{Consecutive: off, FailureRate: off})
		g := newRig(t, b)
		g.run("F*5")
		now := g.now.Add(100 * time.Second)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				r := spillway.Request{Arrived: now}
				tk, err := b.Admit(context.Background(), r)
				if err != nil {
					t.Error(err)
					return
				}
				b.Done(r, tk, spillway.Result{Outcome: spillway.Failure})
			})
		}
		wg.Wait()
		require.EqualValues(t, 100, b.StatsAt(now).Failures)
		require.EqualValues(t, 0, b.StatsAt(now).InFlight)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	nan := math.NaN()
	for want, o := range map[string]breaker.Options{
		"breaker: Buckets must be in 1..1000, got -1":                     {Buckets: -1},
		"breaker: Buckets must be in 1..1000, got 1001":                   {Buckets: 1001},
		"Window must be a positive multiple of Buckets (10) nanoseconds":  {Window: -time.Second},
		"multiple of Buckets (7) nanoseconds, got 10s":                    {Buckets: 7},
		"Window must be at most a year":                                   {Window: 10000 * time.Hour},
		"WindowCalls must be in 0..1048576, got -1":                       {WindowCalls: -1},
		"MinCalls must be at least 1, got -1":                             {MinCalls: -1},
		"MinCalls must be at most WindowCalls (10), got 11":               {WindowCalls: 10, MinCalls: 11},
		"FailureRate must be in (0, 1] or Off, got 1.1":                   {FailureRate: 1.1},
		"FailureRate must be in (0, 1] or Off, got NaN":                   {FailureRate: nan},
		"Consecutive must be at least 1 or Off, got -2":                   {Consecutive: -2},
		"SlowCall must be in 0..1m40s, 10 windows, got -1ns":              {SlowCall: -1},
		"SlowCall must be in 0..1m40s, 10 windows, got 2m0s":              {SlowCall: 2 * time.Minute},
		"SlowRate must be in (0, 1] or Off, got +Inf":                     {SlowRate: math.Inf(1)},
		"OpenFor must be positive and at most a year, got -1ns":           {OpenFor: -1},
		"MaxOpen must be at least OpenFor (5s) and at most a year, got 1": {MaxOpen: time.Second},
		"Jitter must be in (0, 1) or Off, got 1":                          {Jitter: 1},
		"Jitter must be in (0, 1) or Off, got NaN":                        {Jitter: nan},
		"Probes must be in 1..1024, got -1":                               {Probes: -1},
		"ProbeSuccesses must be at least 1, got -1":                       {ProbeSuccesses: -1},
		"ProbeFailureRate must be in (0, 1] or 0, got NaN":                {ProbeFailureRate: nan},
		"ProbeLease must be positive and at most a year, got -1ns":        {ProbeLease: -1},
		"Ramp must not be negative and at most a year, got -1ns":          {Ramp: -1},
	} {
		_, err := breaker.New(&o)
		require.ErrorContains(t, err, want)
	}
	b := newBreaker(t, &breaker.Options{WindowCalls: 5})
	require.NotNil(t, b)
}
