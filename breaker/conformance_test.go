package breaker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
)

const off = breaker.Off

// TestConformance runs the cases that users of other breakers know, in virtual time.
func TestConformance(t *testing.T) {
	for _, tc := range []struct {
		name    string
		options breaker.Options
		script  string
	}{
		{
			"a success ends a row of failures",
			breaker.Options{Consecutive: 6, FailureRate: off},
			"F*5 =closed S F*5 =closed F =open",
		},
		{
			"rate of 60 % with at least 3",
			breaker.Options{MinCalls: 3, FailureRate: 0.6, Window: 30 * time.Second, Consecutive: off},
			"S F =closed F =open",
		},
		{
			"ignored outcomes are not part of the rate",
			breaker.Options{MinCalls: 3, FailureRate: 0.6, Window: 30 * time.Second, Consecutive: off},
			"S F I S F I S F I S F I S F I =closed",
		},
		{
			"57 of 100 are 57 %",
			breaker.Options{MinCalls: 100, FailureRate: 0.57, Consecutive: off},
			"S*43 F*56 =closed F =open",
		},
		{
			"2 of 3 are two thirds",
			breaker.Options{MinCalls: 3, FailureRate: 2.0 / 3, Consecutive: off},
			"S F =closed F =open",
		},
		{
			"the 11th outcome drives out the 1st of 10",
			breaker.Options{WindowCalls: 10, MinCalls: 10, FailureRate: 0.5, Consecutive: off},
			"F S*9 F*4 =closed F =open",
		},
		{
			"a window of calls does not age",
			breaker.Options{WindowCalls: 4, MinCalls: 4, FailureRate: 0.5, Consecutive: off},
			"S S F +1000h =closed F =open",
		},
		{
			"a rate needs a minimum, and successes do not open",
			breaker.Options{MinCalls: 5, FailureRate: 0.5, Consecutive: off},
			"F F F S =closed F =open",
		},
		{
			"the success that fills the minimum does not open",
			breaker.Options{MinCalls: 4, FailureRate: 0.5, Consecutive: off},
			"F F F S =closed S =closed F =open",
		},
		{
			"slow calls open although all succeed",
			breaker.Options{MinCalls: 5, SlowCall: 4 * time.Second, SlowRate: 0.5, Window: time.Minute, Consecutive: off},
			"S@5s S@5s S S =closed S@5s =open",
		},
		{
			"a call of just the threshold is not slow",
			breaker.Options{MinCalls: 1, SlowCall: 4 * time.Second, SlowRate: 0.5, Window: time.Minute},
			"S@4s =closed S@4001ms =open",
		},
		{
			"each call fails after one and a half windows",
			breaker.Options{Consecutive: off, MinCalls: 2, Window: 10 * time.Second},
			">a >b +15s a:F =closed b:F =open",
		},
		{
			"open for 5 s, then a probe",
			breaker.Options{Consecutive: 3, Jitter: off, Probes: 1},
			"F*3 =open +3s rej=2s +2s =half-open >p rej p:S =closed",
		},
		{
			"just before the deadline refused, at it let through",
			breaker.Options{Consecutive: 1, Jitter: off},
			"F +4999999999ns rej=1ns +1ns =half-open S",
		},
		{
			"open times double up to the cap",
			breaker.Options{Consecutive: 1, Jitter: off},
			"F rej=5s +5s F rej=10s +10s F rej=20s +20s F rej=40s +40s F rej=1m +60s F rej=1m +60s S S S =closed",
		},
		{
			"four probes, and one more when one is released",
			breaker.Options{Consecutive: 1, Jitter: off, Probes: 4},
			"F +5s >a >b >c >d rej rej a:I >e rej",
		},
		{
			"half-open again has as many probes as before",
			breaker.Options{Consecutive: 1, Jitter: off, Probes: 4},
			"F +5s >a >b >c >d rej a:F =open b:S c:S d:I +10s >e >f >g >h rej e:S f:S g:S =half-open h:S =closed",
		},
		{
			"a failed probe of four below the rate does not reopen",
			breaker.Options{Consecutive: 1, Jitter: off, Probes: 4, ProbeFailureRate: 0.5},
			"F +5s S S S I =half-open F =closed",
		},
		{
			"a failed probe of four reopens",
			breaker.Options{Consecutive: 1, Jitter: off, Probes: 4},
			"F +5s S S S I =half-open F =open",
		},
		{
			"failed probes decide as soon as the rest cannot help",
			breaker.Options{Consecutive: 1, Jitter: off, Probes: 4, ProbeFailureRate: 0.5},
			"F +5s F =half-open F =open",
		},
		{
			"ignored probes are no successes",
			breaker.Options{Consecutive: 1, Jitter: off, Probes: 4},
			"F +5s I*4 S S S =half-open S =closed",
		},
		{
			"a slow probe is a failed probe",
			breaker.Options{Consecutive: 1, Jitter: off, SlowCall: time.Second},
			"F +5s S@2s =open",
		},
		{
			"a call from before does not decide for the probes",
			breaker.Options{Consecutive: 2, Jitter: off, Probes: 1},
			">a >b F F =open +5s >c a:S =half-open b:F =half-open c:S =closed",
		},
		{
			"a success from before does not close",
			breaker.Options{Consecutive: 2, Jitter: off},
			">a F F a:S =open +4999ms rej +1ms =half-open",
		},
		{
			"a probe of an earlier half-open frees no place",
			breaker.Options{Consecutive: 1, Jitter: off, Probes: 2},
			"F +5s >a >b b:F =open +10s >c >d rej a:S rej =half-open",
		},
		{
			"a cancelled probe gives no verdict",
			breaker.Options{Consecutive: 1, Jitter: off, Probes: 1},
			"F +5s >a rej a:I =half-open >b b:S =closed",
		},
		{
			"a probe that a later policy refused gives no verdict",
			breaker.Options{Consecutive: 1, Jitter: off, Probes: 1},
			"F +5s R*10 =half-open S =closed",
		},
		{
			"a hundred cancelled calls",
			breaker.Options{Consecutive: 1},
			"I*100 =closed",
		},
		{
			"timeouts and overload further on are failures",
			breaker.Options{},
			"D*9 =closed D =open",
		},
		{
			"the failure that moves the window on counts",
			breaker.Options{MinCalls: 2, FailureRate: 1, Window: 4 * time.Second, Buckets: 4, Consecutive: off},
			"F +1s F =open",
		},
		{
			"outcomes leave with the window",
			breaker.Options{MinCalls: 2, FailureRate: 1, Window: 4 * time.Second, Buckets: 4, Consecutive: off},
			"F +4s F =closed +3s F =open",
		},
		{
			"one healthy window takes back one doubling",
			breaker.Options{Consecutive: 1, Jitter: off, Probes: 1},
			"F rej=5s +5s F rej=10s +10s S =closed +10s F rej=10s +10s S =closed +20s F rej=5s",
		},
		{
			"flapping opens longer each time",
			breaker.Options{Consecutive: 1, Jitter: off, Probes: 1},
			"F rej=5s +5s S +3s F rej=10s +10s S +3s F rej=20s",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g, b := newBreakerRig(t, &tc.options)
			g.run(tc.script)
			for _, c := range g.held { // what is still under way ends some time, and nothing is left
				g.done(c, spillway.Refused)
			}
			require.EqualValues(t, 0, b.StatsAt(g.now).InFlight)
		})
	}
}

// TestHangingCallsOpen shows that calls which do not return at all open the Breaker, at the next call after they have
// become slow.
func TestHangingCallsOpen(t *testing.T) {
	g, b := newBreakerRig(t, &breaker.Options{SlowCall: 2 * time.Second, Jitter: off})
	for range 20 {
		_, err := g.admit()
		require.NoError(t, err)
	}
	g.run("+1999ms S =closed +1ms rej=5s =open")
	s := b.StatsAt(g.now)
	require.Equal(t, "slow rate", s.Reason)
	require.EqualValues(t, 20, s.InFlight)
}

// TestHangsAreEvictedWithTheWindow shows that calls which never end, lost by their callers, count for one window.
func TestHangsAreEvictedWithTheWindow(t *testing.T) {
	g, b := newBreakerRig(t, &breaker.Options{SlowCall: 2 * time.Second, Window: 10 * time.Second})
	for range 20 {
		_, err := g.admit()
		require.NoError(t, err)
	}
	g.now = g.now.Add(2 * time.Second)
	require.EqualValues(t, 20, b.StatsAt(g.now).Hung)
	g.now = g.now.Add(10 * time.Second)
	require.EqualValues(t, 0, b.StatsAt(g.now).Hung)
	g.run("S =closed")
	require.EqualValues(t, 20, b.StatsAt(g.now).InFlight)
}

// TestHangsOfAnEarlierTimeDoNotCount shows that calls under way since before a Reset do not open the Breaker.
func TestHangsOfAnEarlierTimeDoNotCount(t *testing.T) {
	g, b := newBreakerRig(t, &breaker.Options{SlowCall: 2 * time.Second})
	for range 20 {
		_, err := g.admit()
		require.NoError(t, err)
	}
	_ = b.SetState(g.now, breaker.Closed, 0)
	g.run("+2s S =closed +1s S =closed")
	require.EqualValues(t, 0, b.StatsAt(g.now).Hung)
}

func TestStatsCountTheWindow(t *testing.T) {
	g, b := newBreakerRig(t, &breaker.Options{Window: 4 * time.Second, Buckets: 4, Consecutive: off, FailureRate: off})
	for i := range 50 {
		g.call([]spillway.Outcome{spillway.Success, spillway.Failure, spillway.Failure}[i%3])
	}
	s := b.StatsAt(g.now)
	require.Equal(t, counts{Successes: 17, Failures: 33}, countsOf(s))
	require.InDelta(t, 0.66, s.FailureRate, 1e-9)
	g.now = g.now.Add(4 * time.Second)
	require.Equal(t, counts{}, countsOf(b.StatsAt(g.now)), "before the next outcome")
}

func TestStatsCountTheLastCalls(t *testing.T) {
	g, b := newBreakerRig(t, &breaker.Options{WindowCalls: 100, Consecutive: off, FailureRate: off})
	for i := range 50 {
		g.call([]spillway.Outcome{spillway.Success, spillway.Failure, spillway.Failure}[i%3])
	}
	require.Equal(t, counts{Successes: 17, Failures: 33}, countsOf(b.StatsAt(g.now)))
	g.run("S*100")
	require.Equal(t, counts{Successes: 100}, countsOf(b.StatsAt(g.now)))
}

func TestStatsTellAll(t *testing.T) {
	g, b := newBreakerRig(t, &breaker.Options{Jitter: off, MinCalls: 4, Probes: 2})
	g.run("S I S F >a >b +1s F =open b:S rej rej +1s")
	s := b.StatsAt(g.now)
	require.Equal(t, breaker.Stats{
		Name: "breaker", State: breaker.Open, Mode: breaker.Auto, Since: t0.Add(time.Second), Reason: "failure rate",
		Successes: 2, Failures: 2, Ignored: 1, FailureRate: 0.5, Consecutive: 2,
		InFlight: 1, Reopenings: 1, NextProbe: t0.Add(6 * time.Second), Refused: 2, Stale: 1, Openings: map[string]int64{"failure rate": 1},
		ByReason: []spillway.Refusal{{Policy: "breaker", Reason: "open", Count: 2}},
	}, s)
	g.run("+4s >p")
	s = b.StatsAt(g.now)
	require.Equal(t, breaker.HalfOpen, s.State)
	require.EqualValues(t, 2, s.InFlight)
	require.Equal(t, 1, s.Probes)
}

// TestOpenTimesVary shows the jitter: all in its band, none above MaxOpen, and not all alike.
func TestOpenTimesVary(t *testing.T) {
	seen := map[time.Duration]bool{}
	for seed := range uint64(1000) {
		g, _ := newBreakerRig(t, &breaker.Options{Consecutive: 1, Seed: seed + 1, MaxOpen: 11 * time.Second})
		g.run("F")
		_, err := g.admit()
		d := retryAfter(t, err)
		require.InDelta(t, 5, d.Seconds(), 1)
		seen[d] = true
		g.now = g.now.Add(d)
		g.run("F")
		_, err = g.admit()
		require.InDelta(t, 9.5, retryAfter(t, err).Seconds(), 1.5)
	}
	require.Greater(t, len(seen), 900)
}

// counts are the outcomes in the Stats of a Breaker.
type counts struct{ Successes, Failures, Ignored, Slow int64 }

func countsOf(s breaker.Stats) counts { return counts{s.Successes, s.Failures, s.Ignored, s.Slow} }

// shared returns the Breaker of keys that have none of their own.
func shared(r *breaker.Keyed) *breaker.Breaker {
	m, _ := r.Lookup("")
	return m.(*breaker.Breaker)
}
