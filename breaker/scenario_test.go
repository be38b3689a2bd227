package breaker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/shadow"
)

// TestDependencyDownForAMinute: 1000 calls per second, 60 s of errors.
func TestDependencyDownForAMinute(t *testing.T) {
	down := upDown(10*time.Second, 70*time.Second, 50*time.Millisecond, spillway.Failure)
	for _, tc := range []struct {
		maxOpen           time.Duration
		maxBroken, within int
	}{
		{time.Minute, 100, 30},    // the default: few calls, and late back
		{5 * time.Second, 150, 6}, // at most MaxOpen late
	} {
		b := newBreaker(t, &breaker.Options{Seed: 1, MaxOpen: tc.maxOpen})
		s := newSim(t, b, down)
		before := s.run(10*time.Second, 1000)
		require.Zero(t, recovered(before), "refused while all was well")
		s.run(70*time.Second, 1000)
		broken := s.broken
		back := recovered(s.run(130*time.Second, 1000))
		t.Logf("MaxOpen %v: %d of 60000 calls reached the broken dependency, back after %d s", tc.maxOpen, broken, back)
		require.LessOrEqual(t, broken, tc.maxBroken)
		require.LessOrEqual(t, back, tc.within)
	}
}

// TestDependencyHangsForAMinute: 100 calls per second that hang until their deadline of 10 s.
func TestDependencyHangsForAMinute(t *testing.T) {
	down := upDown(10*time.Second, 70*time.Second, 10*time.Second, spillway.Dropped)
	for _, tc := range []struct {
		slowCall time.Duration
		slowRate float64
		most     int
	}{
		{0, 0, 1100},          // nothing returns for ten seconds, so nothing is known
		{time.Second, 0, 650}, // a second, and as many calls as it takes to be half of a window that was full of successes
		{time.Second, 0.1, 300},
	} {
		o := &breaker.Options{Seed: 1, SlowCall: tc.slowCall, SlowRate: tc.slowRate, MaxOpen: 10 * time.Second}
		s := newSim(t, newBreaker(t, o), down)
		s.run(70*time.Second, 100)
		broken := s.broken
		back := recovered(s.run(130*time.Second, 100))
		t.Logf("SlowCall %v, SlowRate %v: %d of 6000 calls hung, back after %d s", tc.slowCall, tc.slowRate, broken, back)
		require.LessOrEqual(t, broken, tc.most)
		require.LessOrEqual(t, back, 22, "the lease of the last lost probe, and an open time")
	}
}

// TestSlowDependencyOpens: all calls succeed, in 3 s instead of 20 ms.
func TestSlowDependencyOpens(t *testing.T) {
	slow := upDown(10*time.Second, 40*time.Second, 3*time.Second, spillway.Success)
	b := newBreaker(t, &breaker.Options{Seed: 1, SlowCall: time.Second, MaxOpen: 5 * time.Second})
	s := newSim(t, b, slow)
	s.run(10*time.Second, 100)
	sent := s.sent
	s.run(40*time.Second, 100)
	t.Logf("%d of 3000 calls were slow", s.sent-sent)
	require.LessOrEqual(t, s.sent-sent, 700, "at most half of the window in slow calls, and the probes")
	require.LessOrEqual(t, recovered(s.run(60*time.Second, 100)), 10)
}

// TestFlappingDependency: 4 s up, 4 s down, for 10 minutes. A breaker that forgot its openings would hardly help.
func TestFlappingDependency(t *testing.T) {
	flapping := func(at time.Duration) (time.Duration, spillway.Outcome) {
		if at/(4*time.Second)%2 == 1 {
			return 20 * time.Millisecond, spillway.Failure
		}
		return 20 * time.Millisecond, spillway.Success
	}
	opened := 0
	b := newBreaker(t, &breaker.Options{Seed: 1, OnEvent: func(e breaker.Event) {
		if e.To == breaker.Open {
			opened++
		}
	}})
	s := newSim(t, b, flapping)
	s.run(10*time.Minute, 1000)
	t.Logf("%d of 300000 calls met the broken dependency, opened %d times", s.broken, opened)
	require.LessOrEqual(t, s.broken, 1500)
	require.LessOrEqual(t, opened, 40)
	require.GreaterOrEqual(t, opened, 8, "it tries again")
}

// storm wants 1000 calls per second for the given time. A call that is refused or fails is tried again at once, up to three
// times. It returns how many calls reach the dependency for each that is wanted.
func storm(t *testing.T, p spillway.Policy, dependency func(time.Duration) (time.Duration, spillway.Outcome), to time.Duration) float64 {
	s := newSim(t, p, dependency)
	type attempt struct{ tries int }
	var queue []attempt // the calls under way end in order, since all take as long
	try := func(a attempt) {
		for ; a.tries < 4; a.tries++ {
			if s.call() {
				queue = append(queue, attempt{a.tries + 1})
				return
			}
		}
	}
	s.done = func(_ time.Duration, o spillway.Outcome) {
		a := queue[0]
		queue = queue[1:]
		if o != spillway.Success {
			try(a)
		}
	}
	wanted := 0
	for at := time.Duration(0); at < to; at += time.Millisecond {
		s.advance(at)
		wanted++
		try(attempt{})
	}
	return float64(s.sent) / float64(wanted)
}

// TestRetryStorm shows what retries do to a dependency, alone and with a Throttle in front of each attempt.
func TestRetryStorm(t *testing.T) {
	latency := 20 * time.Millisecond
	capacity := func(perSecond int) func(time.Duration) (time.Duration, spillway.Outcome) {
		second, served := time.Duration(-1), 0
		return func(at time.Duration) (time.Duration, spillway.Outcome) {
			if at/(10*time.Millisecond) != second {
				second, served = at/(10*time.Millisecond), 0
			}
			if served++; served <= perSecond/100 {
				return latency, spillway.Success
			}
			return latency, spillway.Dropped
		}
	}
	dead := func(time.Duration) (time.Duration, spillway.Outcome) { return latency, spillway.Failure }
	for name, tc := range map[string]struct {
		make    func() func(time.Duration) (time.Duration, spillway.Outcome)
		without float64 // at least
		with    float64 // at most
	}{
		"dead":                {func() func(time.Duration) (time.Duration, spillway.Outcome) { return dead }, 3.9, 0.3},
		"half of capacity":    {func() func(time.Duration) (time.Duration, spillway.Outcome) { return capacity(500) }, 2.4, 1.1},
		"a tenth of capacity": {func() func(time.Duration) (time.Duration, spillway.Outcome) { return capacity(100) }, 3.6, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			without := storm(t, shadow.New(newBreaker(t, nil)), tc.make(), time.Minute)
			with := storm(t, newThrottle(t, &breaker.ThrottleOptions{Seed: 1}), tc.make(), time.Minute)
			t.Logf("calls that reach the dependency for each that is wanted: %.2f without a throttle, %.2f with", without, with)
			require.GreaterOrEqual(t, without, tc.without)
			require.LessOrEqual(t, with, tc.with)
		})
	}
}
